"""The store, as ``device-agent status`` reads it: a copy in memory, so a running agent is not disturbed."""

from __future__ import annotations

from typing import Final

from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, warning
from agent.doctor.subject import Subject
from agent.store.sqlite import FILE_NAME, damaged_copies

_MB: Final = 1_000_000
_NEARLY: Final = 0.9


def _database(subject: Subject) -> Finding:
    status = subject.status
    path = subject.config.state_dir / FILE_NAME
    if status.store_fault:
        cause, fix = cause_and_fix(status.store_fault)
        return failed(str(path), cause, fix)
    if status.store is None:
        return skipped(f"there is no {path} yet")
    store, bounds = status.store, subject.config.outbox
    outbox = store.outbox
    seen = f"{path}: {store.disk_bytes / _MB:.1f} MB, {outbox.rows} readings wait ({outbox.size_bytes / _MB:.1f} MB)"
    if outbox.rows > bounds.max_rows * _NEARLY or outbox.size_bytes > bounds.max_bytes * _NEARLY:
        cause = "readings come in faster than they go out, or nothing goes out; soon some are dropped"
        return warning(
            seen, cause, "see the checks of the network; read less often, or raise outbox.max_bytes and max_rows"
        )
    return ok(seen)


def _database_damage(subject: Subject) -> Finding:
    state_dir = subject.config.state_dir
    aside = damaged_copies(state_dir / FILE_NAME)
    incidents = subject.status.store.incidents if subject.status.store is not None else ()
    if not aside and not incidents:
        return ok("it was never damaged")
    seen = f"{len(aside)} damaged files are kept aside" if aside else f"incident: {incidents[0]}"
    cause = incidents[0] if aside and incidents else "power cuts on a card that lies about writing, or a dying card"
    fix = "replace the card when it happens again; once nobody needs them: rm"
    return warning(
        seen, cause, f"{fix} {state_dir}/{FILE_NAME}.damaged-*" if aside else "replace the card when it happens again"
    )


CHECKS: Final = (
    Check("database", "the store: readable, and how full", _database, ("configuration",), timeout_s=30.0),
    Check("database_damage", "damaged stores that were moved aside, incidents", _database_damage, ("configuration",)),
)
