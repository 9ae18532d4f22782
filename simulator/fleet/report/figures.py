"""The figures of operations, of the run and over its time: derived here once, printed by every output.

:meth:`Figures.as_dict` names them: a new entry there is a new member of the JSON files and progress lines, a new column
of the CSV files, and a new line that the page may draw. Terminal and page say which of them they show.

Over time there are at most some hundred slices, however long the run was. Counts are added and histograms merged; a
percentile of a slice is that of all its answers, never one made of percentiles. Of gauges the lowest and the highest
stay, of the generator's health the worst: a spike of one second is in the slice of a minute, as high as it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from simulator.fleet.metrics.ages import COMMAND_AGE, count_unended, requests_of, shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Totals, merge_health, merge_operations
from simulator.fleet.outcomes import FAILED, HELD, WAITED, OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, RunRecord, Second, Span, StepWord, Tally

_PERCENTS: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
LONGEST: Final = "max"
PERCENTILES: Final = (*(f"p{percent:g}" for percent in _PERCENTS), LONGEST)
"""Of every table, file and plot; the last one is the longest time to the last digit."""
ALL_OPERATIONS: Final = "all operations"
_SLICES_MAX: Final = 720
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)


def percentiles(times: Histogram) -> dict[str, float]:
    """Percentiles in seconds by name; NaN without values."""
    return {**dict(zip(PERCENTILES, times.percentiles(_PERCENTS), strict=False)), LONGEST: times.max_s}


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
    span_s: float = 0.0
    counts: Counter[OutcomeClass] = field(default_factory=Counter)
    response: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    resends: int = 0
    ambiguous: int = 0

    @classmethod
    def of(
        cls,
        name: str,
        measured: Mapping[OutcomeClass, Tally],
        span_s: float = 0.0,
        *,
        timed: Iterable[OutcomeClass] = WAITED,
    ) -> Self:
        """Figures of an operation from its tallies by outcome; ``timed``: the outcomes whose times count."""
        found = cls(name, span_s)
        for outcome, tally in measured.items():
            found.counts[outcome] += tally.count
            found.resends += tally.count - tally.first_attempts
            found.ambiguous += tally.resends_ambiguous
            if outcome in timed:
                found.response.add_encoded(tally.response)
                found.service.add_encoded(tally.service)
        return found

    @classmethod
    def together(cls, several: Sequence[Figures], span_s: float) -> Self:
        """All operations as one.

        Those that the service holds on purpose count, and their times do not, unless there is nothing else.
        """
        found = cls(ALL_OPERATIONS, span_s)
        for each in several:
            found.counts += each.counts
            found.resends += each.resends
            found.ambiguous += each.ambiguous
            if each.name not in HELD or len(several) == 1:
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

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, times in seconds."""
        return {
            "count": self.total,
            "ok_per_s": self.per_s(self.good),
            "limited_per_s": self.per_s(self.limited),
            "errors_per_s": self.per_s(self.errors),
            "resends": self.resends,
            "resends_ambiguous": self.ambiguous,
            "response_s": percentiles(self.response),
            "service_s": percentiles(self.service),
        }


def by_operation(operations: Operations, span_s: float = 0.0) -> dict[str, Figures]:
    """Figures of each operation, in the order of their names."""
    return {name: Figures.of(name, classes, span_s) for name, classes in sorted(operations.items())}


def by_outcome(operations: Operations, span_s: float = 0.0) -> Iterator[tuple[OutcomeClass, Figures]]:
    """Figures by operation and outcome, in the order of their names, each with the times of its own outcome."""
    order = list(OutcomeClass)
    for name, classes in sorted(operations.items()):
        for outcome in sorted(classes, key=order.index):
            yield outcome, Figures.of(name, {outcome: classes[outcome]}, span_s, timed=(outcome,))


@dataclass(frozen=True, slots=True)
class FigureSet:
    """All figures of some time: of the run, of a phase, of a slice, of the last seconds.

    Attributes:
        operations: requests by operation.
        whole: all of them together.
        ages: how old readings were when they were accepted, commands when they ended, then those by name and
            end state; what there is of them. They are no requests.
    """

    operations: Mapping[str, Figures]
    whole: Figures
    ages: dict[str, Figures]

    @classmethod
    def of(cls, measured: Operations, span_s: float) -> Self:
        """The figures of what was measured in some seconds."""
        operations = by_operation(requests_of(measured), span_s)
        ages = {name: Figures.of(name, classes, span_s) for name, classes in shown_ages(measured).items()}
        return cls(operations, Figures.together([*operations.values()], span_s), ages)

    @property
    def everything(self) -> dict[str, Figures]:
        """All of it by name: everything together, ages, then each operation."""
        return {ALL_OPERATIONS: self.whole, **self.ages, **self.operations}

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """All of it, each with how often it had which outcome."""
        return {name: {**each.as_dict(), "outcomes": dict(each.counts)} for name, each in self.everything.items()}


def run_figures(record: RunRecord) -> FigureSet:
    """The figures of a whole run."""
    found = FigureSet.of(record.operations, record.duration_s)
    if unended := count_unended(record.commands, record.operations):
        commands = found.ages.setdefault(COMMAND_AGE, Figures(COMMAND_AGE, record.duration_s))
        # Also those without a known age: the order was answered without an id, or no server took the result.
        commands.counts[OutcomeClass.TIMEOUT] += max(0, unended - (commands.total - commands.good))
    return found


def health_figures(health: GeneratorHealth) -> dict[str, Any]:
    """How far the generator can be trusted, by name."""
    return {name: value for name, value in asdict(health).items() if name != "send_lag"}


def search_rows(record: RunRecord) -> list[tuple[str, StepWord, str]]:
    """The steps of a search for the limit: its level, its result, and why; none without a search."""
    search = record.search
    return [(search.text(step.level), step.word, "; ".join(step.why)) for step in search.steps] if search else []


def errors_of(record: RunRecord) -> list[tuple[str, int]]:
    """Why exchanges failed, in the workers' words, and how often: the most frequent first."""
    found = record.extras.get("errors", {})
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))


# --- over time --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Timeline:
    """Takes the seconds of a run, one after the other.

    Attributes:
        spans: its phases, the drain among them; none overlaps another.
        width_s: of a slice.
        slices: those in which something was reported, in order, by where they begin; see :func:`figures_over`.
        phases: those that something was measured in, with the sums of their whole seconds: what fell into two phases
            belongs to none, as for thresholds.
    """

    spans: Sequence[Span]
    width_s: int
    slices: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    phases: list[tuple[Span, Operations]] = field(default_factory=list)
    _waiting: list[Second] = field(default_factory=list)
    _phase: Span | None = None
    _sums: Totals = field(default_factory=Totals)

    @classmethod
    def of(cls, record: RunRecord) -> Self:
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
            begin_s = self._waiting[0].second // self.width_s * self.width_s
            self.slices[begin_s] = figures_over(self._waiting)
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


def gap_spans(record: RunRecord) -> list[Span]:
    """What workers did not report: by worker, and why."""
    return [Span(f"worker {gap.worker}", gap.reason, gap.from_s, gap.to_s) for gap in record.gaps]


def figures_over(seconds: Sequence[Second]) -> dict[str, Any]:
    """Some seconds as one: ``seconds`` that were reported, ``figures`` by name, ``gauges`` and ``generator``.

    Rates are over what was reported. Of each gauge it is the ``low`` and the ``high``.
    """
    found = FigureSet.of(merge_operations(second.operations for second in seconds), float(len(seconds)))
    values: dict[str, list[float]] = {}
    for second in seconds:
        for name, value in second.gauges.items():
            values.setdefault(name, []).append(value)
    return {
        "seconds": len(seconds),
        "figures": found.as_dict(),
        "gauges": {name: {"low": min(each), "high": max(each)} for name, each in values.items()},
        "generator": health_figures(merge_health([second.health for second in seconds])),
    }
