"""The agent's process and the machine's memory."""

from __future__ import annotations

import json
import socket
from importlib.util import find_spec
from typing import Final

from agent.app.start_notes import FILE_NAME as STARTS
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, warning
from agent.doctor.installed import words_of
from agent.doctor.subject import Subject
from agent.wire.address import authority

_LOW: Final = 0.05
_LOW_KB: Final = 32 * 1024
_MANY_RESTARTS: Final = 5
_READER_TIMEOUT_S: Final = 3.0


def _agent(subject: Subject) -> Finding:
    status = subject.status
    if status.state == "died":
        cause = "its last process ended without saying so: killed, out of memory, or the power was cut"
        return failed("no agent runs", cause, "journalctl -u device-agent -n 50; then: systemctl start device-agent")
    if status.state != "running" or status.last_status is None:
        why = f": {status.last_status.reason}" if status.last_status is not None and status.last_status.reason else ""
        return warning(f"no agent runs: {status.state}{why}", "it was not started", "systemctl start device-agent")
    bad = {name: part for name, part in status.last_status.parts.items() if part.state != "ok"}
    seen = f"process {status.process_id} runs"
    if bad:
        name, part = next(iter(bad.items()))
        names = ", ".join(f"{each} {bad[each].state}" for each in bad)
        cause, fix = cause_and_fix(part.detail or f"{name} is {part.state}: look at the check of that part")
        return warning(f"{seen}; {names}", cause, fix)
    return ok(f"{seen}, and all {len(status.last_status.parts)} parts of it are well")


def _restarts(subject: Subject) -> Finding:
    unit = subject.unit
    if unit.get("LoadState") != "loaded" or not unit.get("NRestarts", "").isdigit():
        return skipped("nobody counts the starts: there is no unit")
    count = int(unit["NRestarts"])
    seen = f"systemd started it again {count} times since it was started by hand"
    if count > _MANY_RESTARTS:
        cause = f"it crashes or is ended by the watchdog (last result: {unit.get('Result', 'unknown')})"
        return warning(seen, cause, "journalctl -u device-agent -p err says why; then: systemctl restart device-agent")
    return ok(seen)


def _safe_mode(subject: Subject) -> Finding:
    status = subject.status
    mode = (
        status.last_status.parts.get("mode") if status.state == "running" and status.last_status is not None else None
    )
    if mode is not None and mode.state == "safe":
        cause, _, fix = mode.detail.rpartition("; ")
        return failed("the agent runs in safe mode: no plug-ins, no executables, no sensors", cause or mode.detail, fix)
    count = _unfinished_starts(subject)
    # The one that runs is noted until it has stayed up for long enough.
    if count > (1 if status.state == "running" else 0):
        limit = subject.config.safe_mode.starts
        cause = "they were ended by a crash, a kill or a power cut before they were healthy"
        fix = f"journalctl -u device-agent -p err says why; after {limit} in a row the agent starts in safe mode"
        return warning(f"{count} starts in a row came to nothing", cause, fix)
    return ok("the agent runs with all of itself, or would")


def _unfinished_starts(subject: Subject) -> int:
    try:
        found = json.loads((subject.config.state_dir / STARTS).read_text("utf-8"))
        return len(found["starts"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0


def _memory(subject: Subject) -> Finding:
    figures: dict[str, int] = {}
    for line in (subject.read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            figures[name] = int(number[0])
    total_kb, free_kb = figures.get("MemTotal", 0), figures.get("MemAvailable")
    if not total_kb or free_kb is None:
        return skipped("this system has no /proc/meminfo")
    seen = f"{free_kb // 1024} of {total_kb // 1024} MB can be had"
    if free_kb < max(_LOW_KB, total_kb * _LOW):
        cause = "the machine is short of memory: the kernel may kill the agent, or whatever it likes"
        return warning(
            seen, cause, "see who uses it (ps aux --sort=-rss | head); lower commands.max_lanes, or add swap in zram"
        )
    return ok(seen)


def _oom_kills(subject: Subject) -> Finding:
    group = subject.unit.get("ControlGroup", "")
    own = _count(subject.read(f"/sys/fs/cgroup{group}/memory.events"), "oom_kill") if group else None
    if own:
        limit = subject.unit.get("MemoryMax", "its MemoryMax")
        cause = f"the agent and the programs that it starts need more than the unit allows ({limit} bytes)"
        fix = "raise MemoryHigh and MemoryMax: systemctl edit device-agent, or give big programs a unit of their own"
        return failed(f"the kernel killed {own} processes of the unit for lack of memory", cause, fix)
    machine = _count(subject.read("/proc/vmstat"), "oom_kill")
    if machine is None:
        return skipped("this kernel does not count them")
    if machine:
        cause = "the machine ran out of memory since it was booted"
        return warning(
            f"the kernel killed {machine} processes for lack of memory",
            cause,
            "journalctl -k -g 'Out of memory' names them",
        )
    return ok("the kernel killed nothing for lack of memory since the boot")


def _count(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        word, _, number = line.partition(" ")
        if word == name and number.strip().isdigit():
            return int(number)
    return None


def _metrics(subject: Subject) -> Finding:
    metrics = subject.config.metrics
    if metrics is None:
        return skipped("no figures are served: there is no section metrics")
    if find_spec("prometheus_client") is None:
        cause = "the package prometheus-client is not installed, and the agent does not start without it"
        fix = "pip install '.[metrics]' in a clone of device-agent, or remove the section metrics"
        return failed("the section metrics is there", cause, fix)
    where = metrics.socket or authority(metrics.host, metrics.port or 0)
    if subject.status.process_id is None or metrics.port == 0:
        return ok(f"they are served at {where} while the agent runs")
    try:
        if metrics.socket is not None:
            with socket.socket(socket.AF_UNIX) as reader:
                reader.settimeout(_READER_TIMEOUT_S)
                reader.connect(str(metrics.socket))
        else:
            socket.create_connection((metrics.host, metrics.port or 0), _READER_TIMEOUT_S).close()
    except OSError as error:
        cause = f"the agent runs, and nobody answers ({words_of(error)}): it was started with another configuration"
        return warning(str(where), cause, "systemctl restart device-agent; for a socket also look at its mode")
    return ok(f"they are served at {where}")


CHECKS: Final = (
    Check("agent", "the agent's process and its parts", _agent, ("configuration",)),
    Check("restarts", "how often the agent had to be started again", _restarts),
    Check("safe_mode", "starts that came to nothing", _safe_mode, ("configuration",)),
    Check("memory", "free memory", _memory),
    Check("oom_kills", "processes that the kernel killed for lack of memory", _oom_kills),
    Check("metrics", "where the figures for Prometheus are served", _metrics, ("configuration",)),
)
