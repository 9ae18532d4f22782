"""Plug-ins loaded without starting the agent; installed ones in a process of their own, which they may end.

A plug-in may end its process with an exit, ``os._exit`` or a crash in C, when it is imported, made, checked or read.
Here that is a child process, and what it was at when it ended is known by its last line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Final

from agent.app.plugins import load_handlers, load_sensors
from agent.config import AgentConfig
from agent.frozen import dataclass
from agent.handlers.registry import GROUP as HANDLERS
from agent.handlers.registry import HandlerRegistry
from agent.plugins import PluginInfo, PluginStatus, installed_entry_points, origin_of, refuse_to_load
from agent.process.running import ProgramEnd, ProgramNotStarted, ProgramRun, run_program
from agent.sensors.reader import SensorReader
from agent.sensors.registry import is_installed

HANDLERS_TIMEOUT_S: Final = 30.0
SENSORS_TIMEOUT_S: Final = 50.0
_OUTPUT_BYTES: Final = 1024 * 1024
_KEPT_BACK: Final = ("WATCHDOG_", "LISTEN_", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY")


@dataclass(frozen=True, slots=True)
class SensorFinding:
    """One configured sensor, read once."""

    name: str
    type: str
    state: str
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SensorFindings:
    """All configured sensors, and the types that could be configured."""

    sensors: tuple[SensorFinding, ...]
    types: Mapping[str, str]

    @property
    def all_good(self) -> bool:
        """Each was read, or is switched off on purpose."""
        return all(sensor.state in {"ok", str(PluginStatus.DISABLED)} for sensor in self.sensors)


def read_in_process(config: AgentConfig, without: Container[str] = ()) -> SensorFindings:
    """Read each configured sensor once, all at the same time, each within its timeout.

    Args:
        config: its section ``sensors`` counts.
        without: the names of those that are left out, and not imported.
    """
    kept = tuple(sensor for sensor in config.sensors if sensor.name not in without)
    registry = load_sensors(config.model_copy(update={"sensors": kept}))
    reader = SensorReader(registry.sensors())
    results = reader.read()
    reader.close()
    findings: list[SensorFinding] = []
    for info in registry.listing():
        result = results.get(info.name)
        if result is None:
            findings.append(SensorFinding(info.name, info.type, str(info.status), info.reason))
        elif result.error is not None:
            findings.append(SensorFinding(info.name, info.type, "failing", result.error))
        else:
            left_out = "; ".join(result.refused)
            findings.append(SensorFinding(info.name, info.type, "ok", left_out, dict(result.values)))
    return SensorFindings(tuple(findings), registry.types())


def is_usable(info: PluginInfo) -> bool:
    """Ready, or switched off on purpose."""
    return info.status in {PluginStatus.READY, PluginStatus.DISABLED}


def read_all_sensors(config: AgentConfig) -> SensorFindings:
    """Read each configured sensor once, each within its timeout; those of installed types in a process of their own."""
    installed = read_installed_sensors(config)
    here = read_in_process(config, without=installed)
    by_name = installed | {sensor.name: sensor for sensor in here.sensors}
    return SensorFindings(tuple(by_name[sensor.name] for sensor in config.sensors), here.types)


def survey_handlers(config: AgentConfig) -> HandlerRegistry:
    """Load every handler, as ``device-agent run`` does, but survive those that end their process."""
    exclude_crashing_handlers(config)
    return load_handlers(config)


def exclude_crashing_handlers(config: AgentConfig) -> None:
    """Load each installed handler in a child first; one that ends it is not loaded by this process any more."""
    names = {
        point.name: point
        for point in installed_entry_points(HANDLERS)
        if point.name not in config.commands.handlers or config.commands.handlers[point.name].enabled
    }
    for name, reason in _probe(config, "handlers", sorted(names), HANDLERS_TIMEOUT_S)[1].items():
        point = names[name]
        text = f"{point.value} from {origin_of(point)} {reason}; mend or uninstall that package."
        refuse_to_load(point.value, text)


def read_installed_sensors(config: AgentConfig) -> dict[str, SensorFinding]:
    """Each configured sensor of an installed type, made and read once in a child; by name."""
    sensors = {each.name: each for each in config.sensors if each.enabled and is_installed(each.type)}
    answers, deadly = _probe(config, "sensors", list(sensors), SENSORS_TIMEOUT_S)
    found = {name: SensorFinding(**answer) for name, answer in answers.items()}
    for name, reason in deadly.items():
        kind = sensors[name].type
        text = f"sensor {name!r} of type {kind!r} {reason}; mend or uninstall its package."
        found[name] = SensorFinding(name, kind, str(PluginStatus.CHECK_FAILED), text)
    return found


def _probe(
    config: AgentConfig, kind: str, names: Sequence[str], timeout_s: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """The child's finding for each name, and for names that ended the child the reason."""
    answers: dict[str, Any] = {}
    deadly: dict[str, str] = {}
    while wanted := [name for name in names if name not in answers and name not in deadly]:
        first = {"config": config.model_dump(mode="json"), "kind": kind, "names": wanted, "path": sys.path}
        try:
            run = run_program(
                [sys.executable, "-P", "-m", "agent.app.plugin_probe"],
                timeout_s=timeout_s,
                environment={name: text for name, text in os.environ.items() if not name.startswith(_KEPT_BACK)},
                input_bytes=json.dumps(first).encode(),
                output_bytes=_OUTPUT_BYTES,
            )
        except ProgramNotStarted as error:
            return answers, dict.fromkeys(wanted, f"could not be tried: {error}")
        begun = wanted[0]
        for line in run.output.splitlines():
            try:
                members: Mapping[str, Any] = json.loads(line)
            except ValueError:
                continue  # cut by the end of the process
            begun = members["name"]
            if "answer" in members:
                answers[begun] = members["answer"]
        if begun not in answers:
            deadly[begun] = _how_it_ended(run, timeout_s)
    return answers, deadly


def _how_it_ended(run: ProgramRun, timeout_s: float) -> str:
    if run.ending is ProgramEnd.TIMED_OUT:
        return f"did not come to an end within {timeout_s:g} s"
    return f"ended the process that loads it ({run.describe_exit()})"


def _main() -> None:
    """The child: says which plug-in comes next, and what became of it."""
    first = json.loads(sys.stdin.buffer.read())
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a plug-in prints is no answer
    sys.path[:] = first["path"]
    config = AgentConfig.model_validate(first["config"])
    for name in first["names"]:
        print(json.dumps({"name": name}), file=channel, flush=True)
        answer: Any = None
        if first["kind"] == "handlers":
            load_handlers(config, only_installed=name)
        else:
            sensors = tuple(each for each in config.sensors if each.name == name)
            answer = asdict(read_in_process(config.model_copy(update={"sensors": sensors})).sensors[0])
        print(json.dumps({"name": name, "answer": answer}), file=channel, flush=True)
    channel.flush()
    os._exit(0)  # nothing that a plug-in left behind holds the end up


if __name__ == "__main__":
    _main()
