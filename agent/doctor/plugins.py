"""Plug-ins: handlers, sensors, and the programs that they start."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, Final

from agent.app.plugins import load_handlers, read_sensors
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, warning
from agent.doctor.subject import Subject
from agent.plugins import PluginStatus
from agent.process.bounds import DEFAULT_PATH
from agent.process.running import program_fault

_SENSORS_TIMEOUT_S: Final = 60.0
_HANDLERS_TIMEOUT_S: Final = 60.0
_GOOD: Final = (PluginStatus.READY, PluginStatus.DISABLED)


def _handlers(subject: Subject) -> Finding:
    status = subject.status
    if status.state == "running" and status.last_status is not None:
        states = {name[8:]: text for name, text in status.last_status.plugins.items() if name.startswith("handler:")}
        seen = "as the running agent reports"
    else:
        listing = sorted(load_handlers(subject.config).listing(), key=lambda info: info.status is PluginStatus.READY)
        states = {info.name: f"{info.status}: {info.reason}" for info in listing}
        seen = "each loaded once"
    usable = sorted(name for name, text in states.items() if text.startswith(PluginStatus.READY))
    faults = {name: text for name, text in states.items() if not text.startswith(_GOOD)}
    seen = f"{len(usable)} can be used, {seen}: {', '.join(usable)}"
    if faults:
        name, why = next(iter(faults.items()))
        fix = "mend it, or set commands.handlers.NAME.enabled: false; device-agent handlers lists all"
        return warning(f"{seen}; not {', '.join(sorted(faults))}", f"{name} is {why}", fix)
    return ok(seen)


def _sensors(subject: Subject) -> Finding:
    if not subject.config.sensors:
        return ok("none is configured, so no readings are sent")
    status = subject.status
    if status.state == "running" and status.last_status is not None:
        # A bus that two programs read at once may give both nonsense.
        parts = {name: part for name, part in status.last_status.parts.items() if name.startswith("sensor:")}
        bad = {name: f"{part.state}: {part.detail}" for name, part in parts.items() if part.state != "ok"}
        seen = f"{len(subject.config.sensors)} configured; as the running agent reports"
    else:
        found = read_sensors(subject.config, None)
        bad = {f"sensor:{each.name}": f"{each.state}: {each.reason}" for each in found if not each.is_good}
        seen = f"{len(found)} configured, each read once"
    if bad:
        name, why = next(iter(bad.items()))
        fix = "mend wiring, settings or access (docs/operations.md, The sandbox); device-agent sensors reads them all"
        return failed(f"{seen}; not well: {', '.join(bad)}", f"{name} is {why}", fix)
    return ok(seen)


def _programs(subject: Subject) -> Finding:
    wanted: dict[str, Any] = {f"executables.{name}": each for name, each in subject.config.executables.items()}
    wanted |= {f"sensor {each.name}": each.settings for each in subject.config.sensors if each.type == "program"}
    if not wanted:
        return skipped("no program is configured")
    for owner, settings in wanted.items():
        argv = settings.get("argv")
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            continue  # the check of the plug-ins says so
        fault = program_fault(argv, {"PATH": DEFAULT_PATH})
        if fault is not None:
            return failed(f"{owner} starts {argv[0]}", *cause_and_fix(fault))
        path = Path(argv[0])
        if path.is_absolute() and _is_writable_by_others(path):
            cause = "everybody on this machine may change it, and it runs with the agent's rights"
            return failed(f"{owner} starts {path}", cause, f"chmod o-w {path} {path.parent}")
    return ok(f"{len(wanted)} programs are there and can be started")


def _is_writable_by_others(path: Path) -> bool:
    parent = path.parent.stat().st_mode
    return bool(path.stat().st_mode & stat.S_IWOTH or (parent & stat.S_IWOTH and not parent & stat.S_ISVTX))


CHECKS: Final = (
    Check("handlers", "each command handler", _handlers, ("configuration",), timeout_s=_HANDLERS_TIMEOUT_S),
    Check("sensors", "each configured sensor", _sensors, ("configuration",), timeout_s=_SENSORS_TIMEOUT_S),
    Check("programs", "the programs that handlers and sensors start", _programs, ("configuration",)),
)
