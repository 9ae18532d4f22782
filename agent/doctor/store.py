"""The store, as ``device-agent status`` reads it: a copy in memory, so a running agent is not disturbed."""

from __future__ import annotations

from typing import Final

from agent.adapters.sqlite_store import FILE_NAME
from agent.app.other_devices import describe, find_others
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, warning
from agent.doctor.subject import Subject

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
    seen = f"{path}: {store.file_bytes / _MB:.1f} MB, {outbox.rows} readings wait ({outbox.size_bytes / _MB:.1f} MB)"
    if outbox.rows > bounds.max_rows * _NEARLY or outbox.size_bytes > bounds.max_bytes * _NEARLY:
        cause = "readings come in faster than they go out, or nothing goes out; soon some are dropped"
        return warning(
            seen, cause, "see the checks of the network; read less often, or raise outbox.max_bytes and max_rows"
        )
    return ok(seen)


def _database_damage(subject: Subject) -> Finding:
    state_dir = subject.config.state_dir
    aside = sorted(
        path.name for path in state_dir.glob(f"{FILE_NAME}.damaged-*") if not path.name.endswith(("-wal", "-shm"))
    )
    incidents = subject.status.store.incidents if subject.status.store is not None else ()
    if not aside and not incidents:
        return ok("it was never damaged")
    seen = f"{len(aside)} damaged files are kept aside" if aside else f"incident: {incidents[0]}"
    cause = incidents[0] if aside and incidents else "power cuts on a card that lies about writing, or a dying card"
    fix = "replace the card when it happens again; once nobody needs them: rm"
    return warning(
        seen, cause, f"{fix} {state_dir}/{FILE_NAME}.damaged-*" if aside else "replace the card when it happens again"
    )


def _set_aside(subject: Subject) -> Finding:
    store = subject.status.store
    if store is None or not store.outbox.set_aside:
        return ok("the service refused no reading for good")
    cause = (
        f"the service refused them for good; the last: {store.set_aside[0].reason if store.set_aside else 'unknown'}"
    )
    fix = "mend the sensor or the product's definition; device-agent status lists the reasons"
    return warning(f"{store.outbox.set_aside} readings are set aside", cause, fix)


def _put_aside(subject: Subject) -> Finding:
    store = subject.status.store
    if store is None or not store.results.put_aside:
        return ok("no result of a command is put aside")
    reason = store.put_aside[0].reason if store.put_aside else "unknown"
    seen = f"{store.results.put_aside} results are put aside"
    config = subject.config
    if config.service is not None and config.service.dialect.results == "none":
        return ok(f"{seen}, as service.dialect.results says")
    fix = "give the server a place for results (docs/operations.md), or set service.dialect.results: none"
    return warning(seen, f"the service does not take them; the last: {reason}", fix)


def _gaps(subject: Subject) -> Finding:
    store = subject.status.store
    if store is None or not store.gaps:
        return ok("no reading was ever dropped")
    lost = sum(gap.rows for gap in store.gaps)
    reasons = ", ".join(f"{gap.rows} for {gap.reason}" for gap in store.gaps)
    cause = f"they did not fit the outbox's bounds ({reasons})"
    fix = "raise outbox.max_bytes, max_rows or max_age_s, or read less often; device-agent status says when it was"
    return warning(f"{lost} readings were dropped", cause, fix)


def _other_devices(subject: Subject) -> Finding:
    kept = describe(find_others(subject.config.state_dir))
    if not kept:
        return ok("nothing waits that was taken as another device")
    sentence, _, _ = kept.partition(";")
    cause = "device.device_id was changed while readings or results waited; they are never sent as this device's"
    fix = "use device-agent other-devices release ID to send the readings as this device's, or drop ID to delete them"
    return warning(sentence, cause, fix)


_READ: Final = ("configuration", "database")
CHECKS: Final = (
    Check("database", "the store: readable, and how full", _database, ("configuration",), timeout_s=30.0),
    Check("database_damage", "damaged stores that were moved aside, incidents", _database_damage, ("configuration",)),
    Check("set_aside", "readings that the service refused for good", _set_aside, _READ),
    Check("put_aside", "results of commands that the service does not take", _put_aside, _READ),
    Check("other_devices", "what was kept when device.device_id was changed", _other_devices, ("configuration",)),
    Check("gaps", "readings that were dropped at a bound", _gaps, _READ),
)
