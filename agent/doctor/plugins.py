"""Plug-ins: handlers, sensors, and the programs that they start."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, Final

from agent.app.plugin_probe import is_usable, read_all_sensors
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, warning
from agent.doctor.subject import Subject
from agent.plugins import PluginStatus, stale_packages
from agent.process.bounds import DEFAULT_PATH
from agent.process.running import program_fault

_SENSORS_TIMEOUT_S: Final = 60.0
# Each installed one is loaded in a process of its own, and a small board is slow.
_HANDLERS_TIMEOUT_S: Final = 60.0


def _handlers(subject: Subject) -> Finding:
    registry = subject.handlers
    faults = [info for info in registry.listing() if not is_usable(info)]
    seen = f"{len(registry.names())} can be used: {', '.join(registry.names())}"
    if faults:
        names = ", ".join(sorted({info.name for info in faults}))
        seen = f"{seen}; not {names}"
        cause = f"{faults[0].name} is {faults[0].status}: {faults[0].reason}"
        return warning(
            seen, cause, "mend it, or set commands.handlers.NAME.enabled: false; device-agent handlers lists all"
        )
    return ok(seen)


def _plugin_versions(subject: Subject) -> Finding:
    status = subject.status
    if status.state != "running" or status.last_status is None:
        return skipped("no agent runs")
    stale = stale_packages(status.last_status.packages)
    if stale:
        cause = "a package was changed after the agent had loaded its plug-ins: the old code still runs"
        return warning("; ".join(stale), cause, "systemctl restart device-agent")
    count = len(status.last_status.packages)
    return ok(f"the plug-ins of {count} packages are as installed" if count else "no package brings plug-ins")


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
        found = read_all_sensors(subject.config)
        bad = {
            f"sensor:{sensor.name}": f"{sensor.state}: {sensor.reason}"
            for sensor in found.sensors
            if sensor.state not in {"ok", str(PluginStatus.DISABLED)}
        }
        seen = f"{len(found.sensors)} configured, each read once"
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
    Check("plugin_versions", "plug-ins changed under the running agent", _plugin_versions, ("configuration",)),
    Check("sensors", "each configured sensor", _sensors, ("configuration",), timeout_s=_SENSORS_TIMEOUT_S),
    Check("programs", "the programs that handlers and sensors start", _programs, ("configuration",)),
)
