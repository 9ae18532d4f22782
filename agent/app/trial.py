"""A layer of the configuration on trial: the check before anything is touched, and the end.

The counter of starts keeps how it stands (:mod:`agent.app.start_counter`). The order, each step on the disk before the
next: the layer is written and the agent restarts; each start is counted before the configuration is read; the verdict;
the command's outcome in the journal; the trial is forgotten. A crash after the verdict makes the next process do the
rest again; the journal takes one outcome, so one result is reported.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.app.plugins import is_usable, load_handlers, load_sensors
from agent.app.start_counter import KEPT, ConfigTrial
from agent.config import AgentConfig
from agent.config.load import PROTECTED, changed_keys, is_covered, layer_path, load_layered, parse_layer, read_layer
from agent.core.values import JsonObject, Outcome, OutcomeStatus
from agent.errors import EXIT_REPLACE, ConfigurationError, StorageError
from agent.handlers.base import HandlerRejected
from agent.plugins import PluginInfo
from agent.runtime.health import Part

if TYPE_CHECKING:
    from agent.app.agent import Agent
    from agent.app.run import AgentProcess
    from agent.handlers.maintenance import UpdateConfig

_log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
NEVER: Final = (*PROTECTED, "commands.handlers.update_config", "commands.signing")
"""No command changes these, whatever the settings allow: identity, keys, and who may change what."""
# Their state comes from the change itself, or from what no configuration can help.
_NOT_COMPARED: Final = frozenset({"configuration", "mode", "clock"})
_LINK: Final = "commands"


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
    counter = process.counter
    if counter.trial is not None:
        raise HandlerRejected("busy", "another configuration is on trial; send this one when it is over")
    # JSON is YAML.
    text = config if isinstance(config, str) else json.dumps(config, indent=1, ensure_ascii=False)
    try:
        new = load_layered(process.path, process.environ, parse_layer(text, "update_config"))
    except ConfigurationError as error:
        raise HandlerRejected("invalid_configuration", "; ".join(error.faults)) from error
    old = _in_force(process)
    changed = changed_keys(old, new)
    refused = [key for key in changed if is_covered(key, NEVER) or not is_covered(key, settings.allow)]
    if refused:
        keys = ", ".join(".".join(key) for key in refused)
        fault = f"a command may not change {keys}; see commands.handlers.update_config.settings.allow on the device"
        raise HandlerRejected("not_allowed", fault)
    if faults := _plugin_faults(old, new):
        raise HandlerRejected("invalid_configuration", "; ".join(faults))
    trial = ConfigTrial(
        command_id=command_id,
        probation_s=settings.probation_s,
        changed=tuple(".".join(key) for key in changed),
        before={name: part.state for name, part in process.health.parts().items()},
    )
    try:
        counter.propose(text, trial)
    except OSError as error:
        raise HandlerRejected(
            "not_written", f"{error.filename or process.config.state_dir}: {error.strerror}"
        ) from error
    return trial


def _in_force(process: AgentProcess) -> AgentConfig:
    """Load the configuration from its files again; the local one may have been changed since the process began."""
    layer = layer_path(process.config.state_dir)
    try:
        return load_layered(process.path, process.environ, {} if layer is None else read_layer(layer))
    except ConfigurationError:
        return load_layered(process.path, process.environ, {})  # the layer does not count at present either


def _plugin_faults(old: AgentConfig, new: AgentConfig) -> list[str]:
    """Handlers and sensors that cannot be used with the new one and could be, or were not there, with the old."""
    before = {(info.kind, info.name, info.origin): info.status for info in _plugins(old)}
    return [
        f"{info.kind} {info.name} would be {info.status}: {info.reason}"
        for info in _plugins(new)
        if not is_usable(info) and before.get((info.kind, info.name, info.origin)) != info.status
    ]


def _plugins(config: AgentConfig) -> list[PluginInfo]:
    return [*load_handlers(config).listing, *load_sensors(config).listing]


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


class TrialEnd:
    """Brings a trial to its end, in the agent that runs on trial or the one after it. Used from the main thread."""

    def __init__(self, agent: Agent, trial: ConfigTrial) -> None:
        self._agent = agent
        self._trial = trial
        self._counter, self._supervisor = agent.process.counter, agent.process.supervisor

    def begin(self) -> None:
        """The agent runs: compare it after the probation; or answer what is decided already."""
        trial = self._trial
        if not self._counter.on_trial:
            self._answer()
            return
        _log.info("configuration=on_trial for %.0f s, start %d", trial.probation_s, trial.starts)
        self._supervisor.schedule(trial.probation_s, self._compare)

    def _compare(self, *, is_last: bool = False) -> None:
        probation_s = self._trial.probation_s
        worse = find_regressions(self._trial.before, self._agent.process.health.parts())
        if not worse:
            _log.info("configuration=kept changed=%s", ",".join(self._trial.changed) or "nothing")
            self._answer()
        elif not is_last:
            _log.warning("configuration=on_trial for as long again: %s", "; ".join(worse))
            self._supervisor.schedule(probation_s, lambda: self._compare(is_last=True))
        elif self._counter.take_back(f"after {2 * probation_s:g} s with it: {'; '.join(worse)}"):
            self._supervisor.end("the configuration before the last change comes back", EXIT_REPLACE)
        else:
            self._supervisor.schedule(_RETRY_S, lambda: self._compare(is_last=True))

    def _answer(self) -> None:
        """Write the verdict down, then the command's outcome; each step may be done again."""
        try:
            self._counter.keep()
            self._agent.conclude(self._trial.command_id, outcome_of(self._counter.trial or self._trial))
            self._counter.forget_trial()
        except (OSError, StorageError) as error:
            _log.error("configuration=decided the result cannot be written yet: %s", error)
            self._supervisor.schedule(_RETRY_S, self._answer)


def outcome_of(trial: ConfigTrial) -> Outcome:
    """The outcome of the command that brought the configuration."""
    result: JsonObject = {"changed": list(trial.changed), "starts": trial.starts}
    if trial.phase == KEPT:
        return Outcome(OutcomeStatus.SUCCEEDED, {**result, "probation_s": trial.probation_s})
    return Outcome(
        OutcomeStatus.FAILED, result, f"rolled_back: {trial.reason}; the configuration before it is in force"
    )
