"""The figures of operations, of the run and over its time: derived here once, printed by every output.

:meth:`Figures.as_dict` names them: a new entry there is a new member of the JSON files and a new column of the CSV
files. Terminal and page say which of them they show.

Over time there are at most some hundred slices, however long the run was. Counts are added and histograms merged; a
percentile of a slice is that of all its answers, never one made of percentiles. Of gauges the lowest and the highest
stay, of the generator's health the worst: a spike of one second is in the slice of a minute, as high as it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.fleet.metrics.ages import COMMAND_AGE, count_unended, requests_of, shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Totals, merge_health
from simulator.fleet.outcomes import FAILED, HELD, WAITED, OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, RunRecord, Second, Span, StepWord, Tally

_LONGEST: Final = 100.0
PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, _LONGEST)
"""Of every table, file and plot; the last one is the longest time to the last digit."""
SHOWN_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
"""In the terminal, where there is no room for all."""
ALL_OPERATIONS: Final = "all operations"
_SLICES_MAX: Final = 720
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)


def percentile_name(percent: float) -> str:
    """The name of a percentile: ``p50``, ``p99.9``; ``max`` for 100."""
    return "max" if percent == _LONGEST else f"p{percent:g}"


def percentiles(times: Histogram, percents: Sequence[float] = PERCENTILES) -> dict[str, float]:
    """Percentiles in seconds by name; NaN without values."""
    found = zip(percents, times.percentiles(percents), strict=True)
    return {percentile_name(at): times.max_s if at == _LONGEST else value for at, value in found}


@dataclass(slots=True)
class Figures:
    """One operation, or several together, over some time.

    Attributes:
        name: of the operation.
        span_s: how long they were measured.
        counts: exchanges by outcome.
        resends: exchanges that were no first attempt; see :class:`~simulator.fleet.outcomes.Attempt`.
        ambiguous: those of them whose earlier attempts may have been stored; all others followed refusals.
        response, service: times since it was due, and since it was sent: of good answers, and of answers that never
            came. Without the latter a target that loses every second request would look as fast as ever. What was
            refused, limited or not connected shows in its counts. Thresholds do the same.
    """

    name: str
    span_s: float
    counts: Counter[OutcomeClass]
    response: Histogram
    service: Histogram
    resends: int = 0
    ambiguous: int = 0

    @classmethod
    def of(
        cls,
        name: str,
        parts: Iterable[Mapping[OutcomeClass, Tally]],
        span_s: float = 0.0,
        *,
        timed: Iterable[Any] = WAITED,
    ) -> Figures:
        """Figures of an operation that was measured in several parts, such as seconds.

        Args:
            name: of the operation.
            parts: outcome to what was measured.
            span_s: for how long.
            timed: the outcomes whose times count.
        """
        found = cls(name, span_s, Counter(), Histogram(), Histogram())
        for part in parts:
            for outcome, tally in part.items():
                found.counts[outcome] += tally.count
                found.resends += tally.count - tally.first_attempts
                found.ambiguous += tally.resends_ambiguous
                if outcome in timed:
                    found.response.add_encoded(tally.response)
                    found.service.add_encoded(tally.service)
        return found

    @classmethod
    def together(cls, several: Iterable[Figures], span_s: float, name: str = ALL_OPERATIONS) -> Figures:
        """Several operations as one; those that the service holds on purpose count, and are in no time."""
        found = cls(name, span_s, Counter(), Histogram(), Histogram())
        for each in several:
            found.counts += each.counts
            found.resends += each.resends
            found.ambiguous += each.ambiguous
            if each.name not in HELD:
                found.response.add(each.response)
                found.service.add(each.service)
        return found

    @property
    def total(self) -> int:
        """All exchanges that ended."""
        return self.counts.total()

    @property
    def good(self) -> int:
        """How many answers were good."""
        return self.counts[OutcomeClass.OK]

    @property
    def limited(self) -> int:
        """Answers 429: the quota at work, and no error."""
        return self.counts[OutcomeClass.LIMITED]

    @property
    def errors(self) -> int:
        """How many requests ended otherwise."""
        return sum(self.counts[outcome] for outcome in FAILED)

    def per_s(self, count: int) -> float:
        """A count as a rate; NaN where no time went by."""
        return count / self.span_s if self.span_s > 0 else math.nan

    def as_dict(self, percents: Sequence[float] = PERCENTILES) -> dict[str, Any]:
        """Everything by name, times in seconds."""
        return {
            "count": self.total,
            "ok_per_s": self.per_s(self.good),
            "limited_per_s": self.per_s(self.limited),
            "errors_per_s": self.per_s(self.errors),
            "resends": self.resends,
            "resends_ambiguous": self.ambiguous,
            "response_s": percentiles(self.response, percents),
            "service_s": percentiles(self.service, percents),
        }


def by_operation(operations: Operations, span_s: float = 0.0) -> dict[str, Figures]:
    """Figures of each operation, in the order of their names."""
    return {name: Figures.of(name, (classes,), span_s) for name, classes in sorted(operations.items())}


def by_outcome(operations: Operations, span_s: float = 0.0) -> Iterator[tuple[OutcomeClass, Figures]]:
    """Figures by operation and outcome, in the order of their names, each with the times of its own outcome."""
    order = list(OutcomeClass)
    for name, classes in sorted(operations.items()):
        for outcome in sorted(classes, key=order.index):
            yield outcome, Figures.of(name, ({outcome: classes[outcome]},), span_s, timed=(outcome,))


def age_counts_text(age: Figures) -> tuple[str, str]:
    """How many readings or commands of an age were good, and how many were not; the second is empty where all were."""
    good, other = ("ended", "without a known end") if age.name.startswith(COMMAND_AGE) else ("accepted", "not accepted")
    others = age.total - age.good
    return f"{age.good:,} {good}", f"{others:,} {other}" if others else ""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of a whole run.

    Attributes:
        operations: requests by operation.
        whole: all of them together.
        ages: how old readings were when they were accepted, commands when they ended, then those by end state and by
            name; what there is of them.
    """

    operations: Mapping[str, Figures]
    whole: Figures
    ages: tuple[Figures, ...]


def run_figures(record: RunRecord) -> RunFigures:
    """Derive the figures of a run."""
    operations = by_operation(requests_of(record.operations), record.duration_s)
    whole = Figures.together(operations.values(), record.duration_s)
    shown = shown_ages(record.operations)
    ages = {name: Figures.of(name, (each,), record.duration_s) for name, each in shown.items()}
    if unended := count_unended(record.commands, record.operations):
        all_commands = ages.setdefault(COMMAND_AGE, Figures.of(COMMAND_AGE, (), record.duration_s))
        # Also those that nobody has an age of: whose order was answered without an id, or whose result no server took.
        others = all_commands.total - all_commands.good
        all_commands.counts[OutcomeClass.TIMEOUT] += max(0, unended - others)
    return RunFigures(operations, whole, tuple(ages.values()))


def search_rows(record: RunRecord) -> list[tuple[str, StepWord, str]]:
    """The steps of a search for the limit: how much it was, what became of it, and why; none without a search."""
    search = record.search
    return [(search.text(step.level), step.word, "; ".join(step.why)) for step in search.steps] if search else []


def errors_of(record: RunRecord) -> list[tuple[str, int]]:
    """Why exchanges failed, in the words of whoever made them, and how often: the most frequent first."""
    found = record.extras.get("errors", {})
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))


# --- over time --------------------------------------------------------------------------------------------------------


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
    operations = Totals(seconds).operations
    requests = by_operation(requests_of(operations), span_s)
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
