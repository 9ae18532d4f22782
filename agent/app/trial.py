"""The trial of a new layer of the configuration: its check before anything is touched, and its end.

The files are those of :mod:`agent.config.layer`. The order of steps, each on the disk before the next:

1. candidate, then ``trial.json``: from here on every process begins with the candidate;
2. the agent restarts; each start is counted before the configuration is read (:mod:`agent.app.starting`);
3. the verdict goes into ``trial.json``, then the candidate is renamed or deleted;
4. the command's outcome goes into the journal, and only then ``trial.json`` is deleted.

A crash after 3 makes the next process do 3 and 4 again; the journal takes one outcome, so one result is reported.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent.app.plugins import load_handlers, load_sensors
from agent.config import AgentConfig
from agent.config.changes import changed_keys, is_covered
from agent.config.layer import (
    FOLDER,
    KEEPING,
    KEPT,
    PROTECTED,
    TRYING,
    Trial,
    forget_trial,
    parse_layer,
    propose,
    read_layer,
    read_trial,
    settle,
    sha256_of,
    write_trial,
)
from agent.config.load import load_layered
from agent.core.values import JsonObject, Outcome, OutcomeStatus
from agent.errors import ConfigurationError, StorageError
from agent.exit_codes import EXIT_REPLACE
from agent.handlers.upkeep import ConfigChange, UpkeepRefused
from agent.plugins import PluginInfo, PluginStatus
from agent.runtime.health import Part

_log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
NEVER: Final = (*PROTECTED, "commands.handlers.update_config", "commands.signing", "signing")
"""No command changes these, whatever the settings allow: identity, keys, and who may change what."""
_MODE: Final = "mode"
# Their state comes from the change itself, or from what no configuration can help.
_NOT_JUDGED: Final = frozenset({"configuration", _MODE, "clock"})
_LINK: Final = "commands"
_GOOD: Final = frozenset({PluginStatus.READY, PluginStatus.DISABLED})


def put_on_trial(
    change: ConfigChange, path: Path | None, environ: Mapping[str, str], state_dir: Path, parts: Mapping[str, Part]
) -> Trial:
    """Check a change in full; if it is good, every process begins with it from now on.

    Args:
        change: what the command brings.
        path: the local file.
        environ: of this process.
        state_dir: where layers lie.
        parts: how the agent is now, which it must not fall behind.

    Raises:
        UpkeepRefused: it is not good, with every reason; nothing was touched.
    """
    try:
        if read_trial(state_dir) is not None:
            raise UpkeepRefused("busy", "another configuration is on trial; send this one when it is over")
        kept = state_dir / FOLDER / KEPT
        base_sha256 = sha256_of(kept)
        if change.base_sha256 not in {None, base_sha256}:
            raise UpkeepRefused("wrong_base", f"the layer in force has the sha256 {base_sha256}, not the one given")
        in_force = _values_in_force(kept)
        text, values = _new_layer(change, in_force)
        changed = _check(change, values, in_force, path, environ)
        trial = Trial(
            command_id=change.command_id,
            phase=TRYING,
            max_starts=change.max_starts,
            probation_s=change.probation_s,
            sha256=_sha256(text),
            base_sha256=base_sha256,
            changed=tuple(".".join(key) for key in changed),
            before={name: part.state for name, part in parts.items()},
        )
        propose(state_dir, text, trial)
    except OSError as error:
        raise UpkeepRefused("not_written", f"{error.filename or state_dir}: {error.strerror}") from error
    return trial


def _values_in_force(kept: Path) -> dict[str, Any]:
    if not kept.exists():
        return {}
    try:
        return read_layer(kept)
    except ConfigurationError:
        return {}  # it does not count at present either; a whole new one mends it


def _new_layer(change: ConfigChange, in_force: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(change.config, str):
        text = change.config
    elif change.config is not None:
        text = _as_text(change.config)
    else:
        text = _as_text(_composed(in_force, change.patch))
    try:
        return text, parse_layer(text, "update_config")
    except ConfigurationError as error:
        raise UpkeepRefused("invalid_configuration", "; ".join(error.faults)) from error


def _as_text(values: Any) -> str:
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"  # JSON is YAML


def _composed(layer: Any, patch: Any) -> Any:
    """The layer that does what ``layer`` and then ``patch`` do: unlike in a merge, a null stays."""
    if not isinstance(patch, Mapping):
        return patch
    composed = dict(layer) if isinstance(layer, Mapping) else {}
    for name, value in patch.items():
        composed[name] = _composed(composed.get(name), value)
    return composed


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check(
    change: ConfigChange,
    values: dict[str, Any],
    in_force: dict[str, Any],
    path: Path | None,
    environ: Mapping[str, str],
) -> list[tuple[str, ...]]:
    try:
        new, _ = load_layered(path, environ, values)
    except ConfigurationError as error:
        raise UpkeepRefused("invalid_configuration", "; ".join(error.faults)) from error
    try:
        old, _ = load_layered(path, environ, in_force)
    except ConfigurationError:
        old, _ = load_layered(path, environ, {})
    changed = changed_keys(old, new)
    refused = [key for key in changed if is_covered(key, NEVER) or not is_covered(key, change.allow)]
    if refused:
        keys = ", ".join(".".join(key) for key in refused)
        text = f"a command may not change {keys}; see commands.handlers.update_config.settings.allow on the device"
        raise UpkeepRefused("not_allowed", text)
    faults = _plugin_faults(old, new)
    if faults:
        raise UpkeepRefused("invalid_configuration", "; ".join(faults))
    return changed


def _plugin_faults(old: AgentConfig, new: AgentConfig) -> list[str]:
    """Handlers and sensors that cannot be used with the new one and could be, or were not there, with the old."""
    before = {(info.kind, info.name, info.origin): info.status for info in _plugins(old)}
    return [
        f"{info.kind} {info.name} would be {info.status}: {info.reason}"
        for info in _plugins(new)
        if info.status not in _GOOD and before.get((info.kind, info.name, info.origin)) != info.status
    ]


def _plugins(config: AgentConfig) -> list[PluginInfo]:
    return [*load_handlers(config).listing(), *load_sensors(config).listing()]


def find_regressions(before: Mapping[str, str], parts: Mapping[str, Part]) -> list[str]:
    """Why the agent is not as well as it was: a sentence for each part, empty when it is."""
    # In safe mode no sensor was read, so their state is not known.
    unknown = ("sensor:", "sensors") if before.get(_MODE) == "safe" else ()
    found = [
        f"{name} is {part.state}{f' ({part.detail})' if part.detail else ''}"
        for name, part in parts.items()
        if part.state != "ok"
        and before.get(name) != part.state
        and name not in _NOT_JUDGED
        and not name.startswith(unknown)
    ]
    if before.get(_LINK) == "ok" and _LINK not in parts:
        found.append("the other side has not answered yet")
    return found


class TrialEnd:
    """Brings a trial to its end, in the agent that runs on trial or the one after it. Used from the main thread.

    Args:
        state_dir: where its files are.
        parts: how the agent is.
        schedule: ``(delay_s, call)``: calls later.
        conclude: puts the command's outcome into the journal, unless it has one.
        take_back: the layer did not do, and why; False when that could not be written.
        restart: ends this process, so that the next one begins without the layer.
    """

    def __init__(
        self,
        trial: Trial,
        state_dir: Path,
        *,
        parts: Callable[[], Mapping[str, Part]],
        schedule: Callable[[float, Callable[[], object]], object],
        conclude: Callable[[str, Outcome], object],
        take_back: Callable[[str], bool],
        restart: Callable[[str, int], object],
    ) -> None:
        self._trial = trial
        self._state_dir = state_dir
        self._parts = parts
        self._schedule = schedule
        self._conclude = conclude
        self._take_back = take_back
        self._restart = restart

    def begin(self) -> None:
        """The agent runs: judge it after the probation; or answer what is decided already."""
        trial = self._trial
        if trial.phase != TRYING:
            self._answer()
            return
        _log.info("configuration=on_trial for %.0f s, start %d", trial.probation_s, trial.starts)
        self._schedule(trial.probation_s, self._judge)

    def _judge(self, *, is_last: bool = False) -> None:
        worse = find_regressions(self._trial.before, self._parts())
        if not worse:
            self._keep()
        elif not is_last:
            _log.warning("configuration=on_trial for as long again: %s", "; ".join(worse))
            self._schedule(self._trial.probation_s, lambda: self._judge(is_last=True))
        elif self._take_back(f"after {2 * self._trial.probation_s:g} s with it: {'; '.join(worse)}"):
            self._restart("the configuration before the last change comes back", EXIT_REPLACE)
        else:
            self._schedule(_RETRY_S, lambda: self._judge(is_last=True))

    def _keep(self) -> None:
        kept = replace(self._trial, phase=KEEPING)
        try:
            write_trial(self._state_dir, kept)
        except OSError as error:
            _log.error("configuration=on_trial it did well and that cannot be written: %s", error)
            self._schedule(_RETRY_S, self._keep)
            return
        self._trial = kept
        _log.info("configuration=kept changed=%s", ",".join(kept.changed) or "nothing")
        self._answer()

    def _answer(self) -> None:
        try:
            settle(self._state_dir, self._trial)
            self._conclude(self._trial.command_id, outcome_of(self._trial))
            forget_trial(self._state_dir)
        except (OSError, StorageError) as error:
            _log.error("configuration=decided the result cannot be written yet: %s", error)
            self._schedule(_RETRY_S, self._answer)


def outcome_of(trial: Trial) -> Outcome:
    """The outcome of the command that brought the configuration."""
    result: JsonObject = {
        "changed": list(trial.changed),
        "sha256": trial.sha256 if trial.phase == KEEPING else trial.base_sha256,
        "starts": trial.starts,
    }
    if trial.phase == KEEPING:
        return Outcome(OutcomeStatus.SUCCEEDED, {**result, "probation_s": trial.probation_s})
    return Outcome(
        OutcomeStatus.FAILED, result, f"rolled_back: {trial.reason}; the configuration before it is in force"
    )
