"""A run as at most some hundred slices of time, however long it was, and by phase.

Counts are added and histograms merged; a percentile of a slice is that of all its answers, never one made of
percentiles. Of gauges the lowest and the highest stay, of the generator's health the worst: a spike of one second is in
the slice of a minute, as high as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.merging import Totals, merge_health
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, Second, Span
from simulator.fleet.report.figures import ALL_OPERATIONS, OperationFigures, percentile_times

SLICES_MAX: Final = 720
BAND: Final = (50.0, 95.0, 99.0, 99.9, 100.0)
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)

Percentiles = tuple[float, ...]
"""One for each of :data:`BAND`, in seconds; NaN without any."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some seconds as one.

    Attributes:
        begin_s: since the run's begin.
        seconds: of it that were reported; rates are counts over these.
        counts: by operation and outcome; :data:`ALL_OPERATIONS` is among the operations, and so are
            ages, which are in no sum.
        response, service: by operation.
        gauges: the lowest and the highest of each.
        health: the worst.
    """

    begin_s: int
    seconds: int
    counts: Mapping[str, Mapping[OutcomeClass, int]]
    response: Mapping[str, Percentiles]
    service: Mapping[str, Percentiles]
    gauges: Mapping[str, tuple[float, float]]
    health: GeneratorHealth


def slice_width_s(duration_s: float) -> int:
    """A round width, so that a run of this length has at most :data:`SLICES_MAX` slices."""
    fitting = (width for width in _WIDTHS_S if duration_s / width <= SLICES_MAX)
    return next(fitting, math.ceil(duration_s / SLICES_MAX))


def slices_of(seconds: Iterable[Second], width_s: int) -> Iterator[Slice]:
    """The slices in which something was reported, in order; only one of them is in memory."""
    waiting: list[Second] = []
    for second in seconds:
        if waiting and second.second // width_s != waiting[0].second // width_s:
            yield _slice(waiting, width_s)
            waiting = []
        waiting.append(second)
    if waiting:
        yield _slice(waiting, width_s)


def _slice(seconds: list[Second], width_s: int) -> Slice:
    span_s = float(len(seconds))
    gauges: dict[str, tuple[float, float]] = {}
    for second in seconds:
        for name, value in second.gauges.items():
            low, high = gauges.get(name, (value, value))
            gauges[name] = min(low, value), max(high, value)
    requests = _figures([without_stages(second.operations) for second in seconds], span_s)
    ages = _figures([shown_ages(second.operations) for second in seconds], span_s)
    whole = OperationFigures.combined(ALL_OPERATIONS, requests.values(), span_s)
    return Slice(
        seconds[0].second // width_s * width_s,
        len(seconds),
        {name: each.counts for name, each in {ALL_OPERATIONS: whole, **requests, **ages}.items()},
        {
            name: percentile_times(each.response, BAND)
            for name, each in {ALL_OPERATIONS: whole, **requests, **ages}.items()
        },
        {name: percentile_times(each.service, BAND) for name, each in {ALL_OPERATIONS: whole, **requests}.items()},
        gauges,
        merge_health([second.health for second in seconds]),
    )


def _figures(parts: list[Operations], span_s: float) -> dict[str, OperationFigures]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: OperationFigures.from_parts(name, (part.get(name, {}) for part in parts), span_s) for name in names}


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """The figures of one phase.

    Attributes:
        name: of the phase; ``drain`` for what came after the phases.
        operations: of its whole seconds: what fell into two phases belongs to none, as for thresholds.
        begin_s: since the run's begin.
    """

    name: str
    operations: Operations
    begin_s: float = 0.0


def phase_at(spans: Sequence[Span], second: int) -> Span | None:
    """The phase that a second lies in as a whole; None for one that two share."""
    return next((span for span in spans if span.begin_s <= second and second + 1 <= span.end_s), None)


class ByPhase:
    """Adds seconds up by phase.

    Args:
        spans: the phases in order, none overlapping another.

    Attributes:
        phases: those that something was measured in, once all seconds went by.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.phases: list[PhaseFigures] = []
        self._spans = spans
        self._now: Span | None = None
        self._totals = Totals()

    def passed_on(self, seconds: Iterable[Second]) -> Iterator[Second]:
        """The same seconds again, each added on the way."""
        for second in seconds:
            self._take(second)
            yield second
        self._end()

    def _take(self, second: Second) -> None:
        span = phase_at(self._spans, second.second)
        if span is not self._now:
            self._end()
            self._now = span
        if span is not None:
            self._totals.add(second)

    def _end(self) -> None:
        operations = self._totals.operations
        if self._now is not None and operations:
            self.phases.append(PhaseFigures(self._now.name, operations, self._now.begin_s))
        self._now, self._totals = None, Totals()
