"""The agent's process and its starts."""

from __future__ import annotations

import json
from typing import Final

from agent.app.start_counter import FILE_NAME as STARTS
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, warning
from agent.doctor.subject import Subject


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
        return int(found["failed"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0


CHECKS: Final = (
    Check("agent", "the agent's process and its parts", _agent, ("configuration",)),
    Check("safe_mode", "starts that came to nothing", _safe_mode, ("configuration",)),
)
