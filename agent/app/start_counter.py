"""Starts that came to nothing, counted on the disk: they take a configuration on trial back, or lead to safe mode.

A start is counted before anything can go wrong, and taken off again when it ended in order. An agent that stayed up
for :data:`HEALTHY_AFTER_S` forgets what was before. What is left was ended by a crash, a kill or a power cut, so no
clock is needed to see a loop.

``config.d`` in the state directory has the layer of the configuration that counts (``remote.yaml``) and, while that is
on trial, the one before it (``former.yaml``). ``starts.json`` says how the trial stands. Every step of a trial can be
done again, so a crash between two of them is made good by the next process; a former layer without a trial is one that
was cut off before it began, and comes back.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agent.app.version import VERSION
from agent.config.load import FOLDER, LAYER
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
SAFE_FOR_S: Final = 600.0
"""After so long in safe mode all is tried again."""


@dataclass(frozen=True, slots=True)
class ConfigTrial:
    """A layer that ``update_config`` brought.

    Attributes:
        command_id: of the command, which is answered when the trial is over.
        probation_s: how long the agent must stay well with it, seconds.
        changed: dotted keys whose value is another one than before.
        before: part of the agent -> its state before the change.
        phase: :data:`TRYING`, :data:`KEPT` or :data:`ROLLED_BACK`.
        starts: how many processes have begun with it.
        reason: why it was taken back.
    """

    command_id: str
    probation_s: float
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
        pause_s: how long to wait before this start goes on: safe mode that dies as well must not spin.
        trial: of a layer: under way, or waiting for its answer; None when there is none.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._layer, self._former = state_dir / FOLDER / LAYER, state_dir / FOLDER / _FORMER
        found = _read(self._path)
        self.trial = _trial_of(found.get("trial"))
        is_ours = found.get("version") == VERSION  # the starts of another version say nothing about this one
        self.failed: int = found.get("failed", 0) if is_ours else 0
        self._limit = 0
        self._reason = str(found.get("reason") or _NO_WORD) if self.failed else ""
        self._writing = threading.Lock()  # a layer is proposed in a handler's thread
        self.is_safe = False
        self.why = ""
        self.pause_s = 0.0

    @property
    def on_trial(self) -> bool:
        """Whether this process runs with a layer that is on trial."""
        return self.trial is not None and self.trial.phase == TRYING

    @property
    def mode(self) -> str:
        """``normal``, or that and why it is safe mode."""
        return f"safe: {self.why}" if self.is_safe else "normal"

    def begin(self) -> None:
        """Count this start, before anything that might end it; a layer that came to nothing too often is taken back."""
        trial, last = self.trial, self._reason
        self.failed += 1
        if trial is None or trial.phase == ROLLED_BACK:
            try:
                self._restore()  # a crash may have cut that off
            except OSError as error:
                _log.error("configuration=on_trial the former one cannot be brought back: %s", error)
        elif trial.phase == TRYING:
            if trial.starts == 0:
                # Starts that failed under the former configuration say nothing about the new one.
                self.failed, last = 1, ""
            if trial.starts >= MOST_STARTS_ON_TRIAL:
                self.take_back(f"{trial.starts} start(s) with it did not last until the end of the probation")
                last = ""
            else:
                self.trial = replace(trial, starts=trial.starts + 1)
        self._write("")
        self._reason = last

    def choose_mode(self, limit: int) -> None:
        """Decide on safe mode, once the configuration is there.

        Args:
            limit: so many failed starts in a row make safe mode; 0 never.
        """
        before, self._limit = self.failed - 1, limit
        self.is_safe = 0 < limit <= before
        if self.is_safe:
            if extra := before - limit:
                self.pause_s = min(_PAUSE_S * 2.0 ** min(extra, 30), _MOST_PAUSE_S)
            text = f"{before} start(s) in a row did not stay up for {HEALTHY_AFTER_S:g} s"
            self.why = f"{text}; the last one: {self._reason}"
            # Kept, so that the reason is there should safe mode itself be cut off.
            self._write(self._reason)

    def crashed(self, reason: str) -> None:
        """Note why this process failed."""
        self._write(" ".join(reason.split())[:_REASON_CHARACTERS])

    def ended_in_order(self) -> None:
        """This process was asked to end: its start does not count. Safe mode is over with it.

        After safe mode a single failure leads back into it: the cause was there a moment ago.
        """
        self.failed = self._limit - 1 if self.is_safe else max(0, self.failed - 1)
        if self.trial is not None and self.on_trial and self.trial.starts:
            self.trial = replace(self.trial, starts=self.trial.starts - 1)
        self._write(self._reason)

    def healthy(self) -> None:
        """This process stayed up: what was before is forgotten. In safe mode it stays."""
        if not self.is_safe:
            self.failed = 0
            self._write("")

    # --- a layer of the configuration on trial ------------------------------------------------------------------------

    def propose(self, text: str, trial: ConfigTrial) -> None:
        """Put a layer on trial: from the moment that this returns, each process begins with it.

        Raises:
            OSError: it could not be written; the layer in force is what it was.
        """
        self._layer.parent.mkdir(mode=0o700, exist_ok=True)
        sync_directory(self._path.parent)
        former = self._layer.read_bytes() if self._layer.exists() else b""
        replace_file(self._former, former, 0o600, durable=True)
        try:
            replace_file(self._layer, text, 0o600, durable=True)
            self._store(self._reason, trial)
        except OSError:
            self._restore()
            raise

    def take_back(self, reason: str) -> bool:
        """The layer on trial did not do: the one before it counts from now on. False when that cannot be written."""
        assert self.trial is not None  # noqa: S101 - only called with one
        # The starts before this one died of a configuration that is gone.
        self.failed = 1
        try:
            self._store("", replace(self.trial, phase=ROLLED_BACK, reason=reason))
            self._restore()
        except OSError as error:
            _log.error("configuration=on_trial it cannot be taken back: %s", error)
            return False
        _log.error("configuration=rolled_back %s", reason)
        return True

    def keep(self) -> None:
        """The layer on trial did well.

        Raises:
            OSError: it could not be written.
        """
        if self.trial is not None and self.on_trial:
            self._store(self._reason, replace(self.trial, phase=KEPT))

    def forget_trial(self) -> None:
        """Its command is answered.

        Raises:
            OSError: it could not be written; the command is answered once more, which changes nothing.
        """
        self._former.unlink(missing_ok=True)
        sync_directory(self._former.parent)  # without a trial it would count as one that was cut off
        self._store(self._reason, None)

    def _restore(self) -> None:
        if self._former.exists():
            self._former.replace(self._layer)
            sync_directory(self._layer.parent)

    # --- the file -----------------------------------------------------------------------------------------------------

    def _write(self, reason: str) -> None:
        try:
            self._store(reason, self.trial)
        except OSError as error:
            _log.warning("starts=not_counted %s: %s; safe mode may not come when it should", self._path, error)

    def _store(self, reason: str, trial: ConfigTrial | None) -> None:
        """Write it all down; :attr:`trial` is another one once that is on the disk."""
        with self._writing:
            if self.failed or trial is not None:
                members = {"version": VERSION, "failed": self.failed, "reason": reason}
                trial_members = None if trial is None else asdict(trial)
                replace_file(self._path, json.dumps({**members, "trial": trial_members}), 0o600, durable=True)
            else:
                self._path.unlink(missing_ok=True)
                sync_directory(self._path.parent)
            self.trial, self._reason = trial, reason


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        return {**found, "failed": int(found.get("failed", 0))}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}  # it is replaced in one step, so only a broken disk comes here


def _trial_of(members: Any) -> ConfigTrial | None:
    try:
        trial = ConfigTrial(**{**members, "changed": tuple(members["changed"])})
        return trial if trial.phase in {TRYING, KEPT, ROLLED_BACK} and int(trial.starts) >= 0 else None
    except (TypeError, KeyError, ValueError):
        return None
