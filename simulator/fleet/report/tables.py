"""The tables of a run, as CSV: a row is one observation, and a cell one value.

``timestamp`` is when the second or phase began, in UTC. ``phase`` is empty in a second that two phases share, as for
thresholds. ``workers_missing`` counts workers that did not report the second: what they did is not in its figures.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from agent.errors import InvalidMessage
from agent.wire.times import parse_time, to_rfc3339
from simulator.fleet.metrics.ages import with_shown_ages
from simulator.fleet.record import Operations, RunRecord, Second, Span
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
"""None where there is nothing."""
Row = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class RunTable:
    """A table of a run's figures.

    Attributes:
        name: of its file.
        what: it is, for people.
        columns: in order.
    """

    name: str
    what: str
    columns: tuple[str, ...]


_OUTCOME: Final = (
    "operation",
    "outcome",
    *OUTCOME_COUNTS,
    *(f"{measure}_{percentile_label(percent)}_s" for measure in MEASURES for percent in TABLE_PERCENTILES),
)
SUMMARY: Final = RunTable("summary.csv", "a row for each operation and outcome", _OUTCOME)
PHASES: Final = RunTable("phases.csv", "the same by phase", ("timestamp", "phase", *_OUTCOME))
SECONDS: Final = RunTable(
    "seconds.csv", "the same by second", ("timestamp", "second", "phase", "faults", "workers_missing", *_OUTCOME)
)
FINDINGS: Final = RunTable(
    "findings.csv", "what the audit found, by device", ("device", "device_id", "kind", "count", "key")
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
            self._began_s = parse_time(record.load_began_at) if record.load_began_at else math.nan
        except InvalidMessage:
            self._began_s = math.nan

    def at(self, offset_s: float) -> str | None:
        """The time as RFC 3339; None where the record does not say when its load began."""
        at_s = self._began_s + offset_s
        return to_rfc3339(at_s) if math.isfinite(at_s) else None

    def columns(self, second: int) -> Row:
        """The cells of timestamp, second, phase, faults and workers_missing."""
        phase = phase_at(self._spans, second)
        faults = [span.name for span in self._record.faults if span.begin_s < second + 1 and span.end_s > second]
        missing = {gap.worker for gap in self._record.gaps if gap.from_s <= second < gap.to_s}
        return (self.at(second), second, phase.name if phase else None, "; ".join(faults), len(missing))


def summary_rows(operations: Operations) -> Iterator[Row]:
    """Rows of :data:`SUMMARY`: times in seconds, None where nothing was measured."""
    for figures in figures_by_outcome(operations):
        counts = (count(figures) for count in OUTCOME_COUNTS.values())
        times = (
            value for measure in MEASURES for value in percentile_times(getattr(figures, measure), TABLE_PERCENTILES)
        )
        yield (figures.operation, figures.outcome.value, *counts, *times)


def phase_rows(phases: Iterable[PhaseFigures], moments: Moments) -> Iterator[Row]:
    """Rows of :data:`PHASES`, phases in their order."""
    for phase in phases:
        for row in summary_rows(with_shown_ages(phase.operations)):
            yield (moments.at(phase.begin_s), phase.name, *row)


def second_rows(second: Second, moments: Moments) -> Iterator[Row]:
    """Rows of :data:`SECONDS`."""
    moment = moments.columns(second.second)
    return ((*moment, *row) for row in summary_rows(with_shown_ages(second.operations)))


def finding_rows(record: RunRecord) -> Iterator[Row]:
    """Rows of :data:`FINDINGS`: one for each reading or command that a finding names, one where it names none."""
    for found in record.audit.findings if record.audit is not None else ():
        for key in found.keys or (None,):
            yield (found.name, found.device_id, found.kind, found.count, key)


def devices_of(span: Span) -> Sequence[str]:
    """The devices that a fault names as those it concerned."""
    devices = span.truth.get("devices")
    return [str(each) for each in devices] if isinstance(devices, list | tuple) else []


class CsvFile:
    """A table on the disk, written row by row; a context manager. It has its name only when it is whole.

    RFC 4180 with line feeds; a cell is empty where there is nothing.

    Args:
        folder: where to.
        table: what it is.

    Attributes:
        trouble: why the file is not there; empty when it is.
    """

    def __init__(self, folder: Path, table: RunTable) -> None:
        self.trouble = ""
        self._path = folder / table.name
        self._new = folder / f".{table.name}.new"
        self._file: IO[str] | None = None
        self._writer: Any = None
        try:
            self._file = self._new.open("w", encoding="utf-8", newline="")
            self._writer = csv.writer(self._file, lineterminator="\n")
            self._writer.writerow(table.columns)
        except OSError as error:
            self._give_up(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.trouble or self._file is None:
            return
        try:
            self._file.close()
            if kind is None:
                self._new.replace(self._path)
            else:
                self._new.unlink(missing_ok=True)
        except OSError as fault:
            self._give_up(fault)

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows; what the disk does not take ends the file, and is said in :attr:`trouble`."""
        try:
            for row in rows if not self.trouble else ():
                self._writer.writerow(map(_text, row))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.trouble = f"{self._path}: cannot be written: {error}"
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
        with suppress(OSError):
            self._new.unlink(missing_ok=True)


def _text(cell: Cell) -> str:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return ""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else f"{cell:.6g}"
    return str(cell)
