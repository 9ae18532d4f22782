"""Percentiles as every report shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.ages import ages_of
from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.subjects import WAITED
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Operations, Tally
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
    """How old readings, or commands, were when the service had them.

    Attributes:
        name: as in a threshold: ``readings.age``.
        accepted: how many.
        others: how many nobody accepted.
        times: of those that were accepted, and of those that still waited.
    """

    name: str
    accepted: int
    others: int
    times: Histogram


def ages_in(operations: Operations) -> tuple[AgeFigures, ...]:
    """The ages among what was measured; none where nothing was handed over."""
    return tuple(
        AgeFigures(
            name,
            classes[OutcomeClass.OK].count if OutcomeClass.OK in classes else 0,
            sum(tally.count for kind, tally in classes.items() if kind is not OutcomeClass.OK),
            merged(waited(classes)),
        )
        for name, classes in ages_of(operations).items()
    )


def name_of(percent: float) -> str:
    """``p99.9``; ``max`` for 100."""
    return "max" if percent == _LONGEST else percentile_name(percent)
