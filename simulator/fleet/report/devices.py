"""The table of devices: what each did by its ledger, and what the audit found of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from simulator.fleet.audit.by_device import AGE_PERCENTILES, device_figures
from simulator.fleet.record import AuditRecord, RunRecord
from simulator.fleet.report.figures import percentile_label
from simulator.fleet.report.tables import CellKind, Row, RunTable

_FOUND: Final = ("lost", "doubled", "altered", "unknown", "reordered", "late", "misdated")
_WITHOUT_AGES: Final = frozenset({"backfill"})
BY_DEVICE: Final = RunTable(
    "by-device",
    "a row for each device",
    (
        ("device", CellKind.TEXT),
        ("device_id", CellKind.TEXT),
        *((f"readings_{name}", CellKind.WHOLE) for name in ("sent", "accepted", "refused", "unanswered", "resent")),
        *((f"age_{percentile_label(percent)}_s", CellKind.NUMBER) for percent in AGE_PERCENTILES),
        *((f"commands_{name}", CellKind.WHOLE) for name in ("received", "succeeded", "reported")),
        *((name, CellKind.WHOLE) for name in _FOUND),
    ),
)


def by_device_rows(run: Path, record: RunRecord) -> Iterator[Row]:
    """Rows of :data:`BY_DEVICE`; what the audit could not judge of a device is None.

    Raises:
        ConfigurationError: the run has no ledgers, or they cannot be read.
        StorageError: the disk does not take what has to be sorted.
    """
    found = _found(record.audit)
    has_ages = record.kind not in _WITHOUT_AGES
    for each in device_figures(run):
        device_id = each.device.device_id
        yield (
            each.device.name,
            device_id,
            each.sent,
            each.accepted,
            each.refused,
            each.unanswered,
            each.resent,
            *(each.ages_s if has_ages else (None,) * len(each.ages_s)),
            each.commands,
            each.succeeded,
            each.reported,
            *(counts.get(device_id, default) for counts, default in found),
        )


def _found(audit: AuditRecord | None) -> list[tuple[dict[str, int], int | None]]:
    """For each kind the counts by device, and what holds for a device without one.

    That is 0 only where the list of findings holds all of its kind, and the audit is complete.
    """
    if audit is None:
        return [({}, None)] * len(_FOUND)
    streams = [stream for stream in (audit.readings, audit.commands) if stream is not None]
    kinds: list[tuple[dict[str, int], int | None]] = []
    for kind in _FOUND:
        counts: Counter[str] = Counter()
        for finding in audit.findings:
            if finding.kind == kind:
                counts[finding.device_id] += finding.count
        is_listed = counts.total() >= sum(getattr(stream, kind) for stream in streams)
        kinds.append((dict(counts), 0 if audit.complete and is_listed else None))
    return kinds
