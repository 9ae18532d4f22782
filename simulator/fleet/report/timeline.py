"""The time of a run in one pass over its seconds: at most some hundred slices, however long it was, and its phases.

Counts are added and histograms merged; a percentile of a slice is that of all its answers, never one made of
percentiles. Of gauges the lowest and the highest stay, of the generator's health the worst: a spike of one second is in
the slice of a minute, as high as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.merging import Totals, merge_health
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, RunRecord, Second, Span
from simulator.fleet.report.figures import ALL_OPERATIONS, Figures, by_operation

_SLICES_MAX: Final = 720
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)


@dataclass(frozen=True, slots=True)
class Slice:
    """Some seconds as one.

    Attributes:
        begin_s: since the run's begin.
        seconds: of it that were reported; rates are counts over these.
        counts: by operation and outcome; :data:`ALL_OPERATIONS` is among the operations, and so are
            ages, which are in no sum.
        figures: by operation, as :meth:`Figures.as_dict` names them.
        gauges: the lowest and the highest of each.
        health: the worst.
    """

    begin_s: int
    seconds: int
    counts: Mapping[str, Mapping[OutcomeClass, int]]
    figures: Mapping[str, Mapping[str, Any]]
    gauges: Mapping[str, tuple[float, float]]
    health: GeneratorHealth


@dataclass(slots=True)
class Timeline:
    """Takes the seconds of a run, one after the other.

    Attributes:
        spans: its phases, the drain among them; none overlaps another.
        width_s: of a slice.
        slices: those in which something was reported, in order.
        phases: those that something was measured in, with the sums of their whole seconds: what fell into two phases
            belongs to none, as for thresholds.
    """

    spans: Sequence[Span]
    width_s: int
    slices: list[Slice] = field(default_factory=list)
    phases: list[tuple[Span, Operations]] = field(default_factory=list)
    _waiting: list[Second] = field(default_factory=list)
    _phase: Span | None = None
    _sums: Totals = field(default_factory=Totals)

    @classmethod
    def of(cls, record: RunRecord) -> Timeline:
        """An empty one, of slices of a round width that are few enough."""
        fitting = (width for width in _WIDTHS_S if record.duration_s / width <= _SLICES_MAX)
        return cls(spans_with_drain(record), next(fitting, math.ceil(record.duration_s / _SLICES_MAX)))

    def add(self, second: Second) -> None:
        """Add the next second."""
        if self._waiting and second.second // self.width_s != self._waiting[0].second // self.width_s:
            self._end_slice()
        self._waiting.append(second)
        span = phase_at(self.spans, second.second)
        if span is not self._phase:
            self._end_phase()
            self._phase = span
        if span is not None:
            self._sums.add(second)

    def end(self) -> None:
        """There are no more seconds."""
        self._end_slice()
        self._end_phase()

    def _end_slice(self) -> None:
        if self._waiting:
            self.slices.append(_slice(self._waiting, self.width_s))
        self._waiting = []

    def _end_phase(self) -> None:
        if self._phase is not None and (operations := self._sums.operations):
            self.phases.append((self._phase, operations))
        self._phase, self._sums = None, Totals()


def phase_at(spans: Iterable[Span], second: int) -> Span | None:
    """The phase that a second lies in as a whole; None for one that two share."""
    return next((span for span in spans if span.begin_s <= second and second + 1 <= span.end_s), None)


def spans_with_drain(record: RunRecord) -> list[Span]:
    """The phases, and behind them the drain where it took a second or longer."""
    begin_s = record.drained_from_s
    if begin_s is None or record.duration_s - begin_s < 1:
        return list(record.phases)
    return [*record.phases, Span("drain", "drain", begin_s, record.duration_s, record.devices)]


def _slice(seconds: Sequence[Second], width_s: int) -> Slice:
    span_s = float(len(seconds))
    gauges: dict[str, tuple[float, float]] = {}
    for second in seconds:
        for name, value in second.gauges.items():
            low, high = gauges.get(name, (value, value))
            gauges[name] = min(low, value), max(high, value)
    sums = Totals()
    for second in seconds:
        sums.add(second)
    operations = sums.operations
    requests = by_operation(without_stages(operations), span_s)
    whole = Figures.together(requests.values(), span_s)
    found = {ALL_OPERATIONS: whole, **requests, **by_operation(shown_ages(operations), span_s)}
    return Slice(
        seconds[0].second // width_s * width_s,
        len(seconds),
        {name: each.counts for name, each in found.items()},
        {name: each.as_dict() for name, each in found.items()},
        gauges,
        merge_health([second.health for second in seconds]),
    )
