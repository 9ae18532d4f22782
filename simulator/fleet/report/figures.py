"""The figures of operations: derived here once, printed by every output.

:meth:`Figures.as_dict` names them: a new entry there is a new member of the JSON files and a new column of the CSV
files. Terminal and page say which of them they show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from simulator.fleet.metrics.ages import AGE_OPERATIONS, COMMAND_AGE, count_unended, shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import FAILED, HELD, WAITED, OutcomeClass
from simulator.fleet.record import Operations, RunRecord, StepWord, Tally

_LONGEST: Final = 100.0
PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, _LONGEST)
"""Of every table, file and plot; the last one is the longest time to the last digit."""
SHOWN_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
"""In the terminal, where there is no room for all."""
ALL_OPERATIONS: Final = "all operations"


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


@dataclass(frozen=True, slots=True)
class AgeFigures:
    """How old readings were when they were accepted, or commands when their end reached the service.

    Attributes:
        figures: named as in a threshold: ``readings.age``, ``commands.age``, ``commands.age.failed``,
            ``commands.age[ping]``.
        others: how many readings were not accepted, or commands did not end.
    """

    figures: Figures
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

    operations: Mapping[str, Figures]
    whole: Figures
    ages: tuple[AgeFigures, ...]


def run_figures(record: RunRecord) -> RunFigures:
    """Derive the figures of a run."""
    operations = by_operation(record.operations, record.duration_s)
    whole = Figures.together(operations.values(), record.duration_s)
    return RunFigures(operations, whole, tuple(_ages(record)))


def _ages(record: RunRecord) -> Iterator[AgeFigures]:
    unended = count_unended(record.commands, record.ages)
    shown = shown_ages(record.ages)
    if unended and COMMAND_AGE not in shown:
        shown = {**shown, COMMAND_AGE: {}}  # not one of them has a known end
    for name, classes in shown.items():
        figures = Figures.of(name, (classes,), record.duration_s)
        others = figures.total - figures.good
        yield AgeFigures(figures, max(others, unended) if name == COMMAND_AGE else others)


def search_rows(record: RunRecord) -> list[tuple[str, StepWord, str]]:
    """The steps of a search for the limit: how much it was, what became of it, and why; none without a search."""
    search = record.search
    return [(search.text(step.level), step.word, "; ".join(step.why)) for step in search.steps] if search else []


def errors_of(record: RunRecord) -> list[tuple[str, int]]:
    """Why exchanges failed, in the words of whoever made them, and how often: the most frequent first."""
    found = record.extras.get("errors", {})
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))
