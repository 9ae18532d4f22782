"""What a run's tables hold: a row is one observation, and a cell one value. Pure.

``timestamp`` is when the second, phase or fault began, in UTC. ``phase`` is empty in a second that two phases share, as
for thresholds, and ``fault`` is the name of the fault that began last of those that were under way; ``faults`` says how
many there were, and the sheet ``faults`` from when to when each lasted. ``workers_missing`` counts workers that did not
report the second: what they did is not in its figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.errors import InvalidMessage
from agent.wire.times import parse_time
from simulator.fleet.metrics.ages import with_shown_ages
from simulator.fleet.record import GeneratorHealth, Operations, RunRecord, Second, Span
from simulator.fleet.report.figures import (
    MEASURES,
    OUTCOME_COUNTS,
    TABLE_PERCENTILES,
    figures_by_outcome,
    percentile_label,
    percentile_times,
)
from simulator.fleet.report.timeline import PhaseFigures, phase_at

Cell = str | int | float | None
"""None where there is nothing; a time is seconds since the epoch."""
Row = Sequence[Cell]


class CellKind(StrEnum):
    """What the cells of a column hold."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    TIME = "time"


Column = tuple[str, CellKind]


@dataclass(frozen=True, slots=True)
class RunTable:
    """A table of a run's figures.

    Attributes:
        name: of its files, without a suffix.
        what: it is, for people.
        columns: in order.
    """

    name: str
    what: str
    columns: tuple[Column, ...]


_HEALTH: Final = (
    "send_lag_p99_s",
    "send_lag_max_s",
    "loop_lag_max_s",
    "gc_pause_max_s",
    "steal_percent",
    "cpu_percent",
    "intended",
    "sent",
    "undelivered",
)
_COUNTED: Final = frozenset({"intended", "sent", "undelivered"})
_OUTCOME: Final[tuple[Column, ...]] = (
    ("operation", CellKind.TEXT),
    ("outcome", CellKind.TEXT),
    *((name, CellKind.WHOLE) for name in OUTCOME_COUNTS),
    *(
        (f"{measure}_{percentile_label(percent)}_s", CellKind.NUMBER)
        for measure in MEASURES
        for percent in TABLE_PERCENTILES
    ),
)
_MOMENT: Final[tuple[Column, ...]] = (
    ("timestamp", CellKind.TIME),
    ("second", CellKind.WHOLE),
    ("phase", CellKind.TEXT),
    ("fault", CellKind.TEXT),
    ("faults", CellKind.WHOLE),
    ("workers_missing", CellKind.WHOLE),
)
SUMMARY: Final = RunTable("summary", "a row for each operation and outcome", _OUTCOME)
PHASES: Final = RunTable(
    "phases", "the same by phase", (("timestamp", CellKind.TIME), ("phase", CellKind.TEXT), *_OUTCOME)
)
SECONDS: Final = RunTable("seconds", "the same by second", (*_MOMENT, *_OUTCOME))
GENERATOR: Final = RunTable(
    "generator",
    "the generator by second",
    (*_MOMENT, *((name, CellKind.WHOLE if name in _COUNTED else CellKind.NUMBER) for name in _HEALTH)),
)
GAUGES: Final = RunTable(
    "gauges", "the gauges by second", (*_MOMENT, ("gauge", CellKind.TEXT), ("value", CellKind.NUMBER))
)
FAULTS: Final = RunTable(
    "faults",
    "the faults and their times",
    (
        ("timestamp", CellKind.TIME),
        ("ended", CellKind.TIME),
        ("phase", CellKind.TEXT),
        ("fault", CellKind.TEXT),
        ("kind", CellKind.TEXT),
        ("begin_s", CellKind.NUMBER),
        ("end_s", CellKind.NUMBER),
        ("devices", CellKind.WHOLE),
    ),
)
FAULT_DEVICES: Final = RunTable(
    "fault-devices",
    "the devices of each fault",
    (("timestamp", CellKind.TIME), ("fault", CellKind.TEXT), ("kind", CellKind.TEXT), ("device", CellKind.TEXT)),
)


FINDINGS: Final = RunTable(
    "findings",
    "what the audit found, by device",
    (
        ("device", CellKind.TEXT),
        ("device_id", CellKind.TEXT),
        ("kind", CellKind.TEXT),
        ("count", CellKind.WHOLE),
        ("key", CellKind.TEXT),
    ),
)


class Moments:
    """When something was, by the run's second.

    Args:
        record: the run.
        spans: its phases, the drain among them.
    """

    def __init__(self, record: RunRecord, spans: Sequence[Span]) -> None:
        self._record = record
        self._spans = spans
        try:
            self._began_s: float | None = parse_time(record.load_began_at) if record.load_began_at else None
        except InvalidMessage:
            self._began_s = None

    def at(self, offset_s: float) -> float | None:
        """Seconds since the epoch; None where the record does not say when its load began."""
        is_known = self._began_s is not None and math.isfinite(offset_s)
        return self._began_s + offset_s if is_known and self._began_s is not None else None

    def columns(self, second: int) -> Row:
        """The cells of timestamp, second, phase, fault, faults and workers_missing."""
        phase = phase_at(self._spans, second)
        faults = [span for span in self._record.faults if span.begin_s < second + 1 and span.end_s > second]
        missing = {gap.worker for gap in self._record.gaps if gap.from_s <= second < gap.to_s}
        return (
            self.at(second),
            second,
            phase.name if phase else None,
            max(faults, key=lambda span: span.begin_s).name if faults else None,
            len(faults),
            len(missing),
        )

    def phase_of(self, offset_s: float) -> str | None:
        """The name of the phase in which something began."""
        return next((span.name for span in self._spans if span.begin_s <= offset_s < span.end_s), None)


def summary_rows(operations: Operations) -> Iterator[Row]:
    """Rows of :data:`SUMMARY`: times in seconds, None where nothing was measured."""
    for figures in figures_by_outcome(operations):
        counts = (count(figures) for count in OUTCOME_COUNTS.values())
        times = (
            value for measure in MEASURES for value in percentile_times(getattr(figures, measure), TABLE_PERCENTILES)
        )
        numbers = (None if math.isnan(value) else value for value in times)
        yield (figures.operation, figures.outcome.value, *counts, *numbers)


def phase_rows(phases: Iterable[PhaseFigures], moments: Moments) -> Iterator[Row]:
    """Rows of :data:`PHASES`, phases in their order."""
    for phase in phases:
        for row in summary_rows(with_shown_ages(phase.operations)):
            yield (moments.at(phase.begin_s), phase.name, *row)


def second_rows(second: Second, moments: Moments) -> Iterator[Row]:
    """Rows of :data:`SECONDS`."""
    moment = moments.columns(second.second)
    return ((*moment, *row) for row in summary_rows(with_shown_ages(second.operations)))


def generator_row(second: Second, moments: Moments) -> Row:
    """The row of :data:`GENERATOR`."""
    health: GeneratorHealth = second.health
    return (*moments.columns(second.second), *(getattr(health, name) for name in _HEALTH))


def gauge_rows(second: Second, moments: Moments) -> Iterator[Row]:
    """Rows of :data:`GAUGES`."""
    moment = moments.columns(second.second)
    return ((*moment, name, value) for name, value in sorted(second.gauges.items()))


def fault_rows(record: RunRecord, moments: Moments) -> Iterator[Row]:
    """Rows of :data:`FAULTS`; one that had no end has none."""
    for span in record.faults:
        end_s = span.end_s if math.isfinite(span.end_s) else None
        ended = None if end_s is None else moments.at(end_s)
        phase = moments.phase_of(span.begin_s)
        yield (moments.at(span.begin_s), ended, phase, span.name, span.kind, span.begin_s, end_s, span.devices)


def fault_device_rows(record: RunRecord, moments: Moments) -> Iterator[Row]:
    """Rows of :data:`FAULT_DEVICES`."""
    for span in record.faults:
        for device in devices_of(span):
            yield (moments.at(span.begin_s), span.name, span.kind, device)


def finding_rows(record: RunRecord) -> Iterator[Row]:
    """Rows of :data:`FINDINGS`: one for each reading or command that a finding names, one where it names none."""
    for found in record.audit.findings if record.audit is not None else ():
        for key in found.keys or (None,):
            yield (found.name, found.device_id, found.kind, found.count, key)


def devices_of(span: Span) -> Sequence[str]:
    """The devices that a fault names as those it concerned."""
    devices = span.truth.get("devices")
    return [str(each) for each in devices] if isinstance(devices, list | tuple) else []
