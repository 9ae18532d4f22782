"""A run for other programs: CSV and JSON. Pure but for the file that seconds are written to."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final, Protocol

from simulator.fleet.metrics.ages import shown_ages, with_shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.record import Operations, RunRecord, Second, Tally
from simulator.fleet.report.by_phase import PhaseFigures
from simulator.fleet.report.figures import TABLE, name_of, resends_of, times_at

_NAMES: Final = tuple(name_of(percent) for percent in TABLE)
_MEASURES: Final = ("response", "service")
_COUNTS: Final = ("count", "first_attempts", "resends", "resends_after_refusal", "resends_ambiguous")
_COLUMNS: Final = (
    "operation",
    "outcome",
    *_COUNTS,
    *(f"{measure}_{name}_s" for measure in _MEASURES for name in _NAMES),
)
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


class Pieces(Protocol):
    """Whatever takes text piece by piece."""

    def write(self, text: str, /) -> object:
        """Take a piece."""
        ...


def summary_csv(operations: Operations) -> str:
    """A row for each operation and outcome over the whole run; times in seconds, empty where nothing was measured."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(_COLUMNS)
    rows.writerows(_rows(operations))
    return out.getvalue()


def phases_csv(phases: Iterable[PhaseFigures]) -> str:
    """As :func:`summary_csv` for each phase, in their order."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("phase", *_COLUMNS))
    for phase in phases:
        rows.writerows((phase.name, *row) for row in _rows(with_shown_ages(phase.operations)))
    return out.getvalue()


def passed_on_as_csv(seconds: Iterable[Second], out: Pieces) -> Iterator[Second]:
    """The same seconds again, each written on the way: a row for each operation and outcome of each second."""
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("second", *_COLUMNS))
    for second in seconds:
        rows.writerows((second.second, *row) for row in _rows(with_shown_ages(second.operations)))
        yield second


def passed_on_as_generator_csv(seconds: Iterable[Second], out: Pieces) -> Iterator[Second]:
    """The same seconds again, each written on the way: the generator's health and the gauges, a row a second.

    Gauges share a column, since nobody knows all of them before the end: ``connections=256;online=9998``.
    """
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("second", *_HEALTH, "gauges"))
    for second in seconds:
        gauges = ";".join(f"{name}={value:g}" for name, value in sorted(second.gauges.items()))
        rows.writerow((second.second, *(getattr(second.health, name) for name in _HEALTH), gauges))
        yield second


def summary_json(record: RunRecord) -> str:
    """The record with percentiles as numbers instead of histograms, for scripts; times in seconds."""
    document = asdict(record)
    for member, operations in (("operations", record.operations), ("ages", shown_ages(record.ages))):
        document[member] = {
            name: {outcome: _tally(tally) for outcome, tally in classes.items()} for name, classes in operations.items()
        }
    document["command_stages"] = {
        name: {"count": times.count, **_times(times)}
        for name, times in ((name, Histogram.decode(text)) for name, text in record.command_stages.items())
    }
    del document["health"]["send_lag"]
    return json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _rows(operations: Operations) -> Iterator[tuple[object, ...]]:
    for name, classes in sorted(operations.items()):
        for outcome, tally in sorted(classes.items()):
            times = [
                "" if math.isnan(value) else f"{value:.6g}"
                for measure in _MEASURES
                for value in times_at(Histogram.decode(getattr(tally, measure)), TABLE)
            ]
            yield (name, outcome.value, *_counts(tally), *times)


def _tally(tally: Tally) -> dict[str, Any]:
    measured = {f"{name}_s": _times(Histogram.decode(getattr(tally, name))) for name in _MEASURES}
    return {**dict(zip(_COUNTS, _counts(tally), strict=True)), **measured}


def _counts(tally: Tally) -> tuple[int, ...]:
    """The :data:`_COUNTS`."""
    again = resends_of((tally,))
    return tally.count, tally.first_attempts, again.total, again.after_refusal, again.ambiguous


def _times(histogram: Histogram) -> dict[str, float]:
    return dict(zip(_NAMES, times_at(histogram, TABLE), strict=True))


def _finite(value: Any) -> Any:
    """The document with null where a number is none: JSON has no other word for it."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
