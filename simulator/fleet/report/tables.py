"""The tables of a run, as CSV: a row is one observation, and a cell one value.

``timestamp`` is when the second or phase began, in UTC. ``phase`` is empty in a second that two phases share, as for
thresholds. ``workers_missing`` counts workers that did not report the second: what they did is not in its figures.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from simulator.fleet.metrics.ages import with_shown_ages
from simulator.fleet.record import Operations, RunRecord
from simulator.fleet.report.figures import Figures, by_outcome

Row = Mapping[str, Any]
"""Column to cell; None where there is nothing."""


def _flat(figures: Mapping[str, Any]) -> dict[str, Any]:
    """``response_s`` of several percentiles as ``response_p50_s`` and so on; rates of one outcome say nothing more."""
    found: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            found |= {f"{name.removesuffix('_s')}_{percent}_s": time_s for percent, time_s in value.items()}
        elif not name.endswith("_per_s"):
            found[name] = value
    return found


_OUTCOME: Final = ("operation", "outcome", *_flat(Figures.of("", ()).as_dict()))
TABLES: Final = {
    "summary.csv": ("a row for each operation and outcome", _OUTCOME),
    "phases.csv": ("the same by phase", ("timestamp", "phase", *_OUTCOME)),
    "seconds.csv": ("the same by second", ("timestamp", "second", "phase", "faults", "workers_missing", *_OUTCOME)),
    "findings.csv": ("what the audit found, by device", ("device", "device_id", "kind", "count", "key")),
}
"""Name of the file to what it is, and its columns."""


def outcome_rows(operations: Operations, span_s: float = 0.0, **more: Any) -> Iterator[Row]:
    """A row for each operation and outcome, ages among them; ``more`` are columns in front."""
    for outcome, figures in by_outcome(with_shown_ages(operations), span_s):
        yield {**more, "operation": figures.name, "outcome": outcome.value, **_flat(figures.as_dict())}


def finding_rows(record: RunRecord) -> Iterator[Row]:
    """A row for each reading or command that a finding of the audit names, one where it names none."""
    for found in record.audit.findings if record.audit is not None else ():
        for key in found.keys or (None,):
            yield {
                "device": found.name, "device_id": found.device_id, "kind": found.kind, "count": found.count, "key": key
            }  # fmt: skip


class CsvFile:
    """A table on the disk, written row by row; a context manager. It has its name only when it is whole.

    RFC 4180 with line feeds; a cell is empty where there is nothing.

    Args:
        path: of the file.
        columns: in order.

    Attributes:
        trouble: why the file is not there; empty when it is.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.trouble = ""
        self._path = path
        self._new = path.with_name(f".{path.name}.new")
        self._file: IO[str] | None = None
        self._writer: csv.DictWriter[str] | None = None
        try:
            self._file = self._new.open("w", encoding="utf-8", newline="")
            self._writer = csv.DictWriter(self._file, columns, lineterminator="\n")
            self._writer.writeheader()
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
            for row in rows:
                if self.trouble or self._writer is None:
                    return
                self._writer.writerow({name: _text(cell) for name, cell in row.items()})
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.trouble = f"{self._path}: cannot be written: {error}"
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
        with suppress(OSError):
            self._new.unlink(missing_ok=True)


def _text(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return ""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else f"{cell:.6g}"
    return str(cell)
