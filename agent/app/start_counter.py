"""Starts that came to nothing, counted on the disk: they take a configuration on trial back, or lead to safe mode.

A start is counted before anything can go wrong, and taken off again when it ended in order. An agent that stayed up
for :data:`HEALTHY_AFTER_S` forgets what was before. What is left was ended by a crash, a kill or a power cut, so no
clock is needed to see a loop.

``config.d`` in the state directory has the layer of the configuration that counts (``remote.yaml``) and, while that is
on trial, the one before it (``former.yaml``). ``starts.json`` beside it says how the trial stands; each of its changes
is on the disk before the step that it announces, and every step can be done again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agent.app.version import VERSION
from agent.config.layer import FOLDER, LAYER
from agent.files import replace_file, sync_directory

FILE_NAME: Final = "starts.json"
HEALTHY_AFTER_S: Final = 60.0
MOST_STARTS_ON_TRIAL: Final = 3
TRYING: Final = "trying"
KEPT: Final = "kept"
ROLLED_BACK: Final = "rolled_back"

_log = logging.getLogger(__name__)

_FORMER: Final = "former.yaml"
_MOST_BYTES: Final = 64 * 1024
_REASON_CHARACTERS: Final = 500
_NO_WORD: Final = "it ended without a word: killed, out of memory, or the power was cut"
_PAUSE_S: Final = 5.0
_MOST_PAUSE_S: Final = 300.0
_FIRST_SAFE_S: Final = 600.0
_MOST_SAFE_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class ConfigTrial:
    """A layer that ``update_config`` brought.

    Attributes:
        command_id: of the command, which is answered when the trial is over.
        probation_s: how long the agent must stay well with it, seconds.
        sha256: of the layer's text.
        changed: dotted keys whose value is another one than before.
        before: part of the agent -> its state before the change.
        phase: :data:`TRYING`, :data:`KEPT` or :data:`ROLLED_BACK`.
        starts: how many processes have begun with it.
        reason: why it was taken back.
    """

    command_id: str
    probation_s: float
    sha256: str
    changed: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)
    phase: str = TRYING
    starts: int = 0
    reason: str = ""


class StartCounter:
    """The counter of one state directory, for the process that holds its lock.

    A disk that refuses is logged and costs the count, never the start.

    Args:
        state_dir: where the file lies.

    Attributes:
        failed: starts in a row that came to nothing, this one included until it is healthy.
        is_safe: this process runs in safe mode.
        why: why it does, one sentence; empty when it does not.
        trial: of a layer: under way, or waiting for its answer; None when there is none.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._folder = state_dir / FOLDER
        found = _read(self._path)
        self.trial = _trial_of(found.get("trial"))
        is_ours = found.get("version") == VERSION  # the starts of another version say nothing about this one
        self.failed: int = found.get("failed", 0) if is_ours else 0
        self._rounds: int = found.get("rounds", 0) if is_ours else 0
        self._last = str(found.get("reason") or _NO_WORD) if self.failed else ""
        self._extra = 0
        self._writing = threading.Lock()  # a layer is proposed in a handler's thread
        self.is_safe = False
        self.why = ""

    @property
    def on_trial(self) -> bool:
        """Whether this process runs with a layer that is on trial."""
        return self.trial is not None and self.trial.phase == TRYING

    def begin(self) -> None:
        """Count this start, before anything that might end it; a layer that came to nothing too often is taken back."""
        trial = self.trial
        self.failed += 1
        if trial is not None and trial.phase == TRYING:
            if trial.starts == 0:
                # Starts that failed under the former configuration say nothing about the new one.
                self.failed, self._rounds, self._last = 1, 0, ""
            if _sha256_of(self._folder / LAYER) != trial.sha256:
                self.take_back("the agent ended before the new configuration was written")
            elif trial.starts >= MOST_STARTS_ON_TRIAL:
                self.take_back(f"{trial.starts} start(s) with it did not last until the end of the probation")
            else:
                self.trial = replace(trial, starts=trial.starts + 1)
        elif trial is not None and trial.phase == ROLLED_BACK:
            self._restore()  # a crash may have cut that off
        self._write("")

    def choose_mode(self, limit: int) -> None:
        """Decide on safe mode, once the configuration is there.

        Args:
            limit: so many failed starts in a row make safe mode; 0 never.
        """
        before = self.failed - 1
        # Out of safe mode a single failure leads back into it: the cause was there a moment ago.
        needed = limit if self._rounds == 0 else 1
        self.is_safe = limit > 0 and before >= needed
        if self.is_safe:
            self._extra = before - needed
            text = f"{before} start(s) in a row did not stay up for {HEALTHY_AFTER_S:g} s"
            self.why = f"{text}; the last one: {self._last}"
            # Kept, so that the reason is there should safe mode itself be cut off.
            self._write(self._last)

    @property
    def pause_s(self) -> float:
        """How long to wait before this start goes on: safe mode that dies as well must not spin."""
        return min(_PAUSE_S * 2.0**self._extra, _MOST_PAUSE_S) if self._extra else 0.0

    @property
    def safe_for_s(self) -> float:
        """After how long in safe mode all is tried again."""
        return min(_FIRST_SAFE_S * 2.0 ** min(self._rounds, 30), _MOST_SAFE_S)

    def crashed(self, reason: str) -> None:
        """Note why this process failed."""
        self._write(" ".join(reason.split())[:_REASON_CHARACTERS])

    def ended_in_order(self) -> None:
        """This process was asked to end: its start does not count. Safe mode is over with it."""
        if self.is_safe:
            self.failed, self._rounds = 0, self._rounds + 1
        else:
            self.failed = max(0, self.failed - 1)
        if self.trial is not None and self.trial.phase == TRYING and self.trial.starts:
            self.trial = replace(self.trial, starts=self.trial.starts - 1)
        self._write(self._last)

    def healthy(self) -> None:
        """This process stayed up: what was before is forgotten. In safe mode it stays.

        Every start comes by here, so a lone one goes without a sync of the disk. The kernel does that within half a
        minute; a power cut before may bring it back, and then it counts as one start that came to nothing. What is
        near to safe mode, or was in it, is forgotten for certain.
        """
        if not self.is_safe:
            is_lone = self.failed == 1 and self._rounds == 0
            self.failed, self._rounds, self._last = 0, 0, ""
            self._write("", durable=not is_lone)

    # --- a layer of the configuration on trial ------------------------------------------------------------------------

    def propose(self, text: str, trial: ConfigTrial) -> None:
        """Put a layer on trial: from the moment that this returns, each process begins with it.

        Raises:
            OSError: it could not be written; the layer in force is what it was.
        """
        layer = self._folder / LAYER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        sync_directory(self._path.parent)
        replace_file(self._folder / _FORMER, layer.read_bytes() if layer.exists() else b"", 0o600, durable=True)
        before, self.trial = self.trial, trial
        try:
            self._store(self._last)
            replace_file(layer, text, 0o600, durable=True)
        except OSError:
            self.trial = before
            self._write(self._last)
            raise

    def take_back(self, reason: str) -> bool:
        """The layer on trial did not do: the one before it counts from now on. False when that cannot be written."""
        assert self.trial is not None  # noqa: S101 - only called with one
        trial, self.trial = self.trial, replace(self.trial, phase=ROLLED_BACK, reason=reason)
        # The starts before this one died of a configuration that is gone.
        self.failed, self._rounds, self._last = 1, 0, ""
        try:
            self._store("")
            self._restore()
        except OSError as error:
            self.trial = trial
            _log.error("configuration=on_trial it cannot be taken back: %s", error)
            return False
        _log.error("configuration=rolled_back %s", reason)
        return True

    def keep(self) -> None:
        """The layer on trial did well.

        Raises:
            OSError: it could not be written.
        """
        assert self.trial is not None  # noqa: S101 - only called with one
        if self.trial.phase == TRYING:
            kept = replace(self.trial, phase=KEPT)
            before, self.trial = self.trial, kept
            try:
                self._store(self._last)
            except OSError:
                self.trial = before
                raise

    def forget_trial(self) -> None:
        """Its command is answered.

        Raises:
            OSError: it could not be written; the command is answered once more, which changes nothing.
        """
        trial, self.trial = self.trial, None
        try:
            self._store(self._last)
            (self._folder / _FORMER).unlink(missing_ok=True)
        except OSError:
            self.trial = trial
            raise

    def _restore(self) -> None:
        former = self._folder / _FORMER
        if former.exists():
            former.replace(self._folder / LAYER)
            sync_directory(self._folder)

    # --- the file -----------------------------------------------------------------------------------------------------

    def _write(self, reason: str, *, durable: bool = True) -> None:
        try:
            self._store(reason, durable=durable)
        except OSError as error:
            _log.warning("starts=not_counted %s: %s; safe mode may not come when it should", self._path, error)

    def _store(self, reason: str, *, durable: bool = True) -> None:
        with self._writing:
            if self.failed or self._rounds or self.trial is not None:
                trial = None if self.trial is None else asdict(self.trial)
                members = {"version": VERSION, "failed": self.failed, "rounds": self._rounds, "reason": reason}
                replace_file(self._path, json.dumps({**members, "trial": trial}), 0o600, durable=durable)
                return
            self._path.unlink(missing_ok=True)
            if durable:
                sync_directory(self._path.parent)


def _sha256_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        numbers = {name: int(found.get(name, 0)) for name in ("failed", "rounds")}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}  # it is replaced in one step, so only a broken disk comes here
    return {**found, **numbers}


def _trial_of(members: Any) -> ConfigTrial | None:
    try:
        trial = ConfigTrial(**{**members, "changed": tuple(members["changed"])})
        return trial if trial.phase in {TRYING, KEPT, ROLLED_BACK} and int(trial.starts) >= 0 else None
    except (TypeError, KeyError, ValueError):
        return None
