"""Percentiles as every report shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.ages import AGE_OPERATIONS, COMMAND_AGE, shown_ages
from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.subjects import WAITED
from simulator.fleet.metrics.unended import count_unended
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Tally
from simulator.fleet.report.words import percentile_name

_LONGEST: Final = 100.0
TABLE: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, _LONGEST)
"""Columns of tables and of exports."""


def times_at(histogram: Histogram, percents: Sequence[float]) -> tuple[float, ...]:
    """Percentiles in seconds, NaN without values; 100 is the longest to the last digit."""
    found = histogram.percentiles(percents)
    return tuple(histogram.max_s if at == _LONGEST else value for at, value in zip(percents, found, strict=True))


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
        """Both."""
        return self.after_refusal + self.ambiguous


def resends_of(tallies: Iterable[Tally]) -> Resends:
    """The resends among some exchanges."""
    everything = list(tallies)
    ambiguous = sum(tally.resends_ambiguous for tally in everything)
    return Resends(sum(tally.count - tally.first_attempts for tally in everything) - ambiguous, ambiguous)


def waited(classes: Mapping[OutcomeClass, Tally], measure: str = "response") -> list[str]:
    """The encoded histograms that an operation's times are made of: good answers, and answers that never came.

    Whoever got none has waited, too; without them a target that loses every second request would look as fast as ever.
    Thresholds do the same. What was refused, limited or not connected is told by its counts.
    """
    return [getattr(classes[kind], measure) for kind in OutcomeClass if kind in WAITED and kind in classes]


@dataclass(frozen=True, slots=True)
class AgeFigures:
    """How old readings were that the service accepted, or commands whose end it knows.

    Attributes:
        name: as in a threshold: ``readings.age``, ``commands.age``, ``commands.age.failed``, ``commands.age[ping]``.
        good: how many readings were accepted, or commands ended.
        others: how many were not, or did not.
        times: of the good ones, and of those that still waited.
    """

    name: str
    good: int
    others: int
    times: Histogram

    @property
    def is_whole(self) -> bool:
        """Whether it is of all readings or of all commands."""
        return self.name in AGE_OPERATIONS

    @property
    def is_of_commands(self) -> bool:
        """Whether it is of commands."""
        return self.name.startswith(COMMAND_AGE)

    @property
    def counts_text(self) -> tuple[str, str]:
        """How many were good, in words, and how many were not; the second is empty where all were."""
        good, other = ("ended", "without a known end") if self.is_of_commands else ("accepted", "not accepted")
        return f"{self.good:,} {good}", f"{self.others:,} {other}" if self.others else ""


def ages_in(record: RunRecord) -> tuple[AgeFigures, ...]:
    """The ages of a run: readings, commands, then commands by end state and by name; what there is of them."""
    unended, found = count_unended(record.commands, record.ages), []
    shown = shown_ages(record.ages)
    if unended and COMMAND_AGE not in shown:
        shown = {**shown, COMMAND_AGE: {}}  # not one of them has a known end
    for name, classes in shown.items():
        good = classes[OutcomeClass.OK].count if OutcomeClass.OK in classes else 0
        others = sum(tally.count for kind, tally in classes.items() if kind is not OutcomeClass.OK)
        others = max(others, unended) if name == COMMAND_AGE else others
        found.append(AgeFigures(name, good, others, merged(waited(classes))))
    return tuple(found)


def name_of(percent: float) -> str:
    """``p99.9``; ``max`` for 100."""
    return "max" if percent == _LONGEST else percentile_name(percent)
