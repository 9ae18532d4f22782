"""Starts that came to nothing, counted on the disk: they take a configuration on trial back, or lead to safe mode.

A start is counted before anything can go wrong, and taken off again when it ended in order. An agent that stayed up
for :data:`HEALTHY_AFTER_S` forgets what was before. What is left was ended by a crash, a kill or a power cut, so no
clock is needed to see a loop.

``starts.json`` is the truth about a trial (:mod:`agent.trial`): it holds the layer of the configuration on trial and
the one before. The layer that counts, ``config.d/remote.yaml``, follows it at each start, before the configuration is
read. After the verdict comes the command's outcome in the journal, then the trial is forgotten: a crash between them
makes the next process do the rest again, and the journal takes one outcome, so one result is reported.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.app.plugins import is_usable, load_handlers, load_sensors
from agent.app.version import VERSION
from agent.config import AgentConfig
from agent.config.load import (
    FOLDER,
    LAYER,
    PROTECTED,
    changed_keys,
    is_covered,
    load_config,
    load_layered,
    parse_layer,
)
from agent.core.values import JsonObject, Outcome, OutcomeStatus
from agent.errors import EXIT_REPLACE, ConfigurationError, StorageError
from agent.files import replace_file, sync_directory
from agent.handlers.base import HandlerRejected
from agent.health import Part
from agent.plugins import PluginInfo
from agent.trial import KEPT, ROLLED_BACK, TRYING, Trial

if TYPE_CHECKING:
    from agent.app.agent import Agent
    from agent.app.run import AgentProcess
    from agent.handlers.maintenance import UpdateConfig

FILE_NAME: Final = "starts.json"
HEALTHY_AFTER_S: Final = 60.0
SAFE_FOR_S: Final = 600.0
"""After so long in safe mode all is tried again."""
NEVER: Final = (*PROTECTED, "commands.handlers.update_config", "commands.signing")
"""No command changes these, whatever the settings allow: identity, keys, and who may change what."""

_log = logging.getLogger(__name__)

_MOST_STARTS_ON_TRIAL: Final = 3
_MOST_BYTES: Final = 8 * 1024 * 1024
_REASON_CHARACTERS: Final = 500
_NO_WORD: Final = "it ended without a word: killed, out of memory, or the power was cut"
_PAUSE_S: Final = 5.0
_MOST_PAUSE_S: Final = 300.0
_RETRY_S: Final = 5.0
# Their state comes from the change itself, or from what no configuration can help.
_NOT_COMPARED: Final = frozenset({"configuration", "mode", "clock"})
_LINK: Final = "commands"


@dataclass(frozen=True, slots=True)
class ConfigTrial(Trial):
    """A layer that ``update_config`` brought.

    Attributes:
        layer, former: texts of the layer on trial and of the one before.
        changed: dotted keys whose value is another one than before.
        before: part of the agent -> its state before the change.
    """

    layer: str = ""
    former: str = ""
    changed: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)

    def outcome(self) -> Outcome:
        """The outcome of its command, once it is over."""
        result: JsonObject = {"changed": list(self.changed)}
        if self.phase == KEPT:
            result |= {"starts": self.starts, "probation_s": self.probation_s}
            return Outcome(OutcomeStatus.SUCCEEDED, result)
        why = f"rolled_back: {self.reason}; the configuration before it is in force"
        return Outcome(OutcomeStatus.FAILED, result, why)


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
        self._layer = state_dir / FOLDER / LAYER
        found = _read(self._path)
        self.trial = ConfigTrial.read(found.get("trial"))
        is_ours = found.get("version") == VERSION  # the starts of another version say nothing about this one
        self.failed: int = found["failed"] if is_ours else 0
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

    def begin(self) -> None:
        """Count this start, before anything that might end it; a layer that came to nothing too often is taken back."""
        trial, last = self.trial, self._reason
        self.failed += 1
        if trial is not None and trial.phase == TRYING:
            if trial.starts == 0:
                # Starts that failed under the former configuration say nothing about the new one.
                self.failed, last = 1, ""
            trial = trial.started(_MOST_STARTS_ON_TRIAL)
            if trial.phase == ROLLED_BACK:
                self.failed, last = 1, ""
                _log.error("configuration=rolled_back %s", trial.reason)
        if trial is not None:
            try:
                self._follow(trial)
            except OSError as error:
                _log.error("configuration=on_trial %s cannot be written: %s", self._layer, error)
                if trial.phase == TRYING:
                    trial = trial.taken_back(f"its layer cannot be written: {error}")
        self.trial = trial
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

    def propose(self, trial: ConfigTrial) -> None:
        """Put a layer on trial: from the moment that this returns, each process begins with it.

        Raises:
            OSError: it could not be written; nothing was changed.
        """
        former = self._layer.read_text("utf-8", "replace") if self._layer.exists() else ""
        self._store(self._reason, replace(trial, former=former))

    def take_back(self, reason: str) -> bool:
        """The layer on trial did not do: the one before it counts from now on. False when that cannot be written."""
        assert self.trial is not None  # noqa: S101 - only called with one
        # The starts before this one died of a configuration that is gone.
        self.failed = 1
        try:
            self._store("", self.trial.taken_back(reason))
            self._follow(self.trial)
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
        """Forget the trial of a configuration, once the command that brought it has its result in the journal.

        Raises:
            OSError: it could not be written; the command is answered once more, which changes nothing.
        """
        if self.trial is not None:
            self._follow(self.trial)
            self._store(self._reason, None)

    def _follow(self, trial: ConfigTrial) -> None:
        """Let the layer that counts be what the trial says."""
        wanted = trial.former if trial.phase == ROLLED_BACK else trial.layer
        if not self._layer.exists() or self._layer.read_bytes() != wanted.encode():
            self._layer.parent.mkdir(mode=0o700, exist_ok=True)
            sync_directory(self._path.parent)
            replace_file(self._layer, wanted, 0o600, durable=True)

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
        return {"failed": 0}  # it is replaced in one step, so only a broken disk comes here


# --- what update_config brings, and how its trial ends ----------------------------------------------------------------


def put_on_trial(
    process: AgentProcess, command_id: str, config: str | dict[str, Any], settings: UpdateConfig.Settings
) -> ConfigTrial:
    """Check a new layer in full; if it is good, every process begins with it from now on.

    Args:
        process: that runs now, which the agent must not fall behind.
        command_id: of the command that brings the layer.
        config: the whole layer, as YAML text or as an object.
        settings: what may change, and how long the agent must stay well with it.

    Raises:
        HandlerRejected: it is not good, with every reason; nothing was touched.
    """
    if process.counter.trial is not None:
        raise HandlerRejected("busy", "another configuration is on trial; send this one when it is over")
    # JSON is YAML.
    text = config if isinstance(config, str) else json.dumps(config, indent=1, ensure_ascii=False)
    try:
        new = load_layered(process.path, process.environ, parse_layer(text, "update_config"))
    except ConfigurationError as error:
        raise HandlerRejected("invalid_configuration", "; ".join(error.faults)) from error
    # From its files again: the local one may have been changed since the process began.
    old = load_config(process.path, process.environ).config
    changed = changed_keys(old, new)
    refused = [key for key in changed if is_covered(key, NEVER) or not is_covered(key, settings.allow)]
    if refused:
        keys = ", ".join(".".join(key) for key in refused)
        fault = f"a command may not change {keys}; see commands.handlers.update_config.settings.allow on the device"
        raise HandlerRejected("not_allowed", fault)
    # Handlers and sensors that cannot be used with the new one and could be, or were not there, with the old.
    before = {(info.kind, info.name, info.origin): info.status for info in _plugins(old)}
    faults = [
        f"{info.kind} {info.name} would be {info.status}: {info.reason}"
        for info in _plugins(new)
        if not is_usable(info) and before.get((info.kind, info.name, info.origin)) != info.status
    ]
    if faults:
        raise HandlerRejected("invalid_configuration", "; ".join(faults))
    trial = ConfigTrial(
        command_id=command_id,
        probation_s=settings.probation_s,
        layer=text,
        changed=tuple(".".join(key) for key in changed),
        before={name: part.state for name, part in process.health.parts().items()},
    )
    try:
        process.counter.propose(trial)
    except OSError as error:
        where = error.filename or process.config.state_dir
        raise HandlerRejected("not_written", f"{where}: {error.strerror}") from error
    return trial


def _plugins(config: AgentConfig) -> list[PluginInfo]:
    return [*load_handlers(config).listing, *load_sensors(config).listing]


def end_trial(agent: Agent) -> None:
    """In an agent that has just started: judge the layer on trial after its probation, or answer what is decided."""
    counter, schedule = agent.process.counter, agent.process.supervisor.schedule
    trial = counter.trial
    if trial is None:
        return

    def judge(*, is_last: bool = False) -> None:
        worse = find_regressions(trial.before, agent.process.health.parts())
        if not worse:
            _log.info("configuration=kept changed=%s", ",".join(trial.changed) or "nothing")
            answer()
        elif not is_last:
            _log.warning("configuration=on_trial for as long again: %s", "; ".join(worse))
            schedule(trial.probation_s, lambda: judge(is_last=True))
        elif counter.take_back(f"after {2 * trial.probation_s:g} s with it: {'; '.join(worse)}"):
            agent.process.supervisor.end("the configuration before the last change comes back", EXIT_REPLACE)
        else:
            schedule(_RETRY_S, lambda: judge(is_last=True))

    def answer() -> None:
        """The verdict, then the command's outcome; each step may be done again."""
        try:
            counter.keep()
            agent.conclude(trial.command_id, (counter.trial or trial).outcome())
            counter.forget_trial()
        except (OSError, StorageError) as error:
            _log.error("configuration=decided the result cannot be written yet: %s", error)
            schedule(_RETRY_S, answer)

    if counter.on_trial:
        _log.info("configuration=on_trial for %.0f s, start %d", trial.probation_s, trial.starts)
        schedule(trial.probation_s, judge)
    else:
        answer()


def find_regressions(before: Mapping[str, str], parts: Mapping[str, Part]) -> list[str]:
    """Why the agent is not as well as it was: a sentence for each part, empty when it is."""
    # In safe mode no sensor was read, so their state is not known.
    unknown = ("sensor:", "sensors") if before.get("mode") == "safe" else ()
    found = [
        f"{name} is {part.state}{f' ({part.detail})' if part.detail else ''}"
        for name, part in parts.items()
        if part.state not in {"ok", before.get(name)} and name not in _NOT_COMPARED and not name.startswith(unknown)
    ]
    if before.get(_LINK) == "ok" and _LINK not in parts:
        found.append("the other side has not answered yet")
    return found
