"""Counts and percentiles of operations: derived here once, shown by every output.

Two levels: :class:`OutcomeFigures` for one operation and outcome (tables of files, JSON), and :class:`OperationFigures`
for an operation as a whole (terminal, page, live view, history). :data:`OUTCOME_COUNTS` and :data:`OPERATION_COLUMNS`
say which numbers are shown of them: one more entry is one more column in each output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.ages import AGE_OPERATIONS, COMMAND_AGE, READING_AGE, count_unended, shown_ages
from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.outcomes import FAILED, HELD, WAITED, OutcomeClass
from simulator.fleet.record import Operations, RunRecord, Tally
from simulator.fleet.report.formatting import count_text, percentile_name
from simulator.report_parts.values import Tone

_LONGEST: Final = 100.0
TABLE_PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, _LONGEST)
"""Percentiles in tables and exports."""
SHOWN_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
"""Percentiles in the terminal."""
MEASURES: Final = ("response", "service")
"""The two times of an exchange: since it was due, and since it was sent."""
ALL_OPERATIONS: Final = "all operations"


def percentile_times(histogram: Histogram, percents: Sequence[float]) -> tuple[float, ...]:
    """Percentiles in seconds, NaN without values; 100 is the longest to the last digit."""
    found = histogram.percentiles(percents)
    return tuple(histogram.max_s if at == _LONGEST else value for at, value in zip(percents, found, strict=True))


def percentile_label(percent: float) -> str:
    """``p99.9``; ``max`` for 100."""
    return "max" if percent == _LONGEST else percentile_name(percent)


@dataclass(frozen=True, slots=True)
class Resends:
    """Exchanges that were no first attempt; see :class:`~simulator.fleet.outcomes.Attempt`.

    Attributes:
        after_refusal: all earlier ones were refused: surely nothing of them was stored.
        ambiguous: an earlier one may have been stored.
    """

    after_refusal: int
    ambiguous: int

    @property
    def total(self) -> int:
        """How many requests were sent again: after a refusal, or after an ambiguous end."""
        return self.after_refusal + self.ambiguous


def resends_of(tallies: Iterable[Tally]) -> Resends:
    """The resends among some exchanges."""
    everything = list(tallies)
    ambiguous = sum(tally.resends_ambiguous for tally in everything)
    return Resends(sum(tally.count - tally.first_attempts for tally in everything) - ambiguous, ambiguous)


def waited_histograms(classes: Mapping[OutcomeClass, Tally], measure: str = "response") -> list[str]:
    """The encoded histograms that an operation's times are made of: good answers, and answers that never came.

    Without the latter a target that loses every second request would look as fast as ever. Thresholds do the same.
    What was refused, limited or not connected shows in its counts.
    """
    return [getattr(classes[kind], measure) for kind in OutcomeClass if kind in WAITED and kind in classes]


# --- by outcome -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutcomeFigures:
    """The exchanges of one operation that ended in one outcome.

    Attributes:
        response, service: their times.
    """

    operation: str
    outcome: OutcomeClass
    count: int
    first_attempts: int
    resends: Resends
    response: Histogram
    service: Histogram


OUTCOME_COUNTS: Final[Mapping[str, Callable[[OutcomeFigures], int]]] = {
    "count": lambda each: each.count,
    "first_attempts": lambda each: each.first_attempts,
    "resends": lambda each: each.resends.total,
    "resends_after_refusal": lambda each: each.resends.after_refusal,
    "resends_ambiguous": lambda each: each.resends.ambiguous,
}
"""The counts of an outcome in tables of files and in JSON, by name."""


def errors_of(record: RunRecord) -> list[tuple[str, int]]:
    """Why exchanges failed, in the words of whoever made them, and how often: the most frequent first."""
    found = record.extras.get("errors", {})
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))


def figures_by_outcome(operations: Operations) -> Iterator[OutcomeFigures]:
    """Figures by operation and outcome, in the order of their names."""
    for name, classes in sorted(operations.items()):
        for outcome, tally in sorted(classes.items()):
            yield OutcomeFigures(
                name,
                outcome,
                tally.count,
                tally.first_attempts,
                resends_of((tally,)),
                Histogram.decode(tally.response),
                Histogram.decode(tally.service),
            )


# --- by operation -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperationFigures:
    """One operation, or several together, over some time.

    Attributes:
        counts: exchanges by outcome.
        response, service: times of those who waited for an answer; see :func:`waited_histograms`.
        span_s: how long they were measured.
    """

    name: str
    counts: Mapping[OutcomeClass, int]
    resends: Resends
    response: Histogram
    service: Histogram
    span_s: float

    @classmethod
    def from_parts(cls, name: str, parts: Iterable[Mapping[OutcomeClass, Tally]], span_s: float) -> OperationFigures:
        """Figures of an operation that was measured in several parts, such as seconds."""
        counts: dict[OutcomeClass, int] = {}
        tallies: list[Tally] = []
        texts: dict[str, list[str]] = {measure: [] for measure in MEASURES}
        for classes in parts:
            tallies += classes.values()
            for outcome, tally in classes.items():
                counts[outcome] = counts.get(outcome, 0) + tally.count
            for measure in MEASURES:
                texts[measure] += waited_histograms(classes, measure)
        return cls(name, counts, resends_of(tallies), merged(texts["response"]), merged(texts["service"]), span_s)

    @classmethod
    def combined(cls, name: str, figures: Iterable[OperationFigures], span_s: float) -> OperationFigures:
        """Several operations as one; those that the service holds on purpose count, and are in no time."""
        counts: dict[OutcomeClass, int] = {}
        after_refusal = ambiguous = 0
        response, service = Histogram(), Histogram()
        for each in figures:
            for outcome, count in each.counts.items():
                counts[outcome] = counts.get(outcome, 0) + count
            after_refusal += each.resends.after_refusal
            ambiguous += each.resends.ambiguous
            if each.name not in HELD:
                response.add(each.response)
                service.add(each.service)
        return cls(name, counts, Resends(after_refusal, ambiguous), response, service, span_s)

    @property
    def good(self) -> int:
        """How many answers were good."""
        return self.counts.get(OutcomeClass.OK, 0)

    @property
    def limited(self) -> int:
        """Answers 429: the quota at work, and no error."""
        return self.counts.get(OutcomeClass.LIMITED, 0)

    @property
    def errors(self) -> int:
        """How many requests ended otherwise."""
        return sum(self.counts.get(outcome, 0) for outcome in FAILED)

    @property
    def total(self) -> int:
        """All exchanges that ended."""
        return sum(self.counts.values())

    def per_s(self, count: int) -> float:
        """A count as a rate; NaN where no time went by."""
        return count / self.span_s if self.span_s > 0 else math.nan


def figures_by_operation(operations: Operations, span_s: float) -> dict[str, OperationFigures]:
    """Figures of each operation, in the order of their names.

    Args:
        operations: what was measured.
        span_s: for how long.
    """
    return {name: OperationFigures.from_parts(name, (classes,), span_s) for name, classes in sorted(operations.items())}


@dataclass(frozen=True, slots=True)
class OperationColumn:
    """A column of the tables of operations.

    Attributes:
        terminal, page: its heading in each of them; empty where it is not shown there.
        text: the number for a person.
        count: the number that decides whether the column is of interest; None for one that is always shown.
        tone: of a count above 0.
        is_rare: the terminal shows it only where some count is above 0.
    """

    terminal: str
    page: str
    text: Callable[[OperationFigures], str]
    count: Callable[[OperationFigures], int] = lambda _figures: 0
    tone: Tone = Tone.PLAIN
    is_rare: bool = False


OPERATION_COLUMNS: Final = (
    OperationColumn("ok", "Count", lambda each: f"{each.good:,}"),
    OperationColumn("per s", "Per second", lambda each: count_text(each.per_s(each.good))),
    OperationColumn("429", "", lambda each: f"{each.limited:,}", lambda each: each.limited, Tone.WARN),
    OperationColumn("errors", "", lambda each: f"{each.errors:,}", lambda each: each.errors, Tone.BAD),
    OperationColumn(
        "again", "Sent again", lambda each: f"{each.resends.total:,}", lambda each: each.resends.total, is_rare=True
    ),
)
"""The numbers of an operation in tables for people, in front of its percentiles."""


# --- ages, and the whole run ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgeFigures:
    """How old readings were when they were accepted, or commands when their end reached the service.

    Attributes:
        figures: named as in a threshold: ``readings.age``, ``commands.age``, ``commands.age.failed``,
            ``commands.age[ping]``.
        others: how many readings were not accepted, or commands did not end.
    """

    figures: OperationFigures
    others: int

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.figures.name

    @property
    def is_whole(self) -> bool:
        """Whether these are the figures of all readings or of all commands."""
        return self.name in AGE_OPERATIONS

    @property
    def counts_text(self) -> tuple[str, str]:
        """How many were good, in words, and how many were not; the second is empty where all were."""
        of_commands = self.name.startswith(COMMAND_AGE)
        good, other = ("ended", "without a known end") if of_commands else ("accepted", "not accepted")
        return f"{self.figures.good:,} {good}", f"{self.others:,} {other}" if self.others else ""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of a whole run.

    Attributes:
        operations: requests by operation.
        whole: all of them together.
        ages: readings, commands, then commands by end state and by name; what there is of them.
    """

    operations: Mapping[str, OperationFigures]
    whole: OperationFigures
    ages: tuple[AgeFigures, ...]


def run_figures(record: RunRecord) -> RunFigures:
    """Derive the figures of a run."""
    operations = figures_by_operation(record.operations, record.duration_s)
    whole = OperationFigures.combined(ALL_OPERATIONS, operations.values(), record.duration_s)
    return RunFigures(operations, whole, tuple(_ages(record)))


def _ages(record: RunRecord) -> Iterator[AgeFigures]:
    unended = count_unended(record.commands, record.ages)
    shown = shown_ages(record.ages)
    if unended and COMMAND_AGE not in shown:
        shown = {**shown, COMMAND_AGE: {}}  # not one of them has a known end
    for name, classes in shown.items():
        figures = OperationFigures.from_parts(name, (classes,), record.duration_s)
        others = figures.total - figures.good
        yield AgeFigures(figures, max(others, unended) if name == COMMAND_AGE else others)


def phase_figures(operations: Operations) -> tuple[OperationFigures, ...]:
    """Counts and times of a phase, without rates: ages first, then requests in the order of their names."""
    ages = shown_ages(operations)
    return (
        *(OperationFigures.from_parts(name, (classes,), 0.0) for name, classes in ages.items()),
        *figures_by_operation(without_stages(operations), 0.0).values(),
    )


def headline_values(record: RunRecord) -> dict[str, tuple[str, float]]:
    """The headline figures of a run over its whole time, the most important first: unit (as in comparisons) and value.

    One that nothing was measured of is missing.
    """
    found: dict[str, tuple[str, float]] = {}
    figures = run_figures(record)
    ages = {age.name: age.figures for age in figures.ages if age.is_whole}
    played_s = record.duration_s if record.drained_from_s is None else record.drained_from_s
    for name, percents in ((READING_AGE, (50.0, 99.0)), (COMMAND_AGE, (99.0,))):
        for percent in percents if name in ages and ages[name].response.count else ():
            found[f"{name} p{percent:g}"] = "s", ages[name].response.percentile(percent)
    if READING_AGE in ages and OutcomeClass.OK in ages[READING_AGE].counts and played_s > 0:
        found["readings accepted per second"] = "per_s", ages[READING_AGE].good / played_s
    if every := figures.whole.total - figures.whole.limited:
        found["errors"] = "share", figures.whole.errors / every
    for name, each in sorted(figures.operations.items()):
        if name not in HELD and each.response.count:
            found[f"{name} p99"] = "s", each.response.percentile(99.0)
    return found
