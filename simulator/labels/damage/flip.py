"""Finds by bisection the severity at which a decoder no longer reads a label, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from simulator.labels.damage.verdict import Verdicts

WIDTH: Final = 1 / 128
"""A bracket is at most this wide."""
_TENTHS: Final = tuple(tenth / 10 for tenth in range(11))


class FlipOutcome(StrEnum):
    """Whether there is a severity where a decoder loses a label."""

    FLIPS = "flips"
    NEVER = "never"
    """Legible at every severity that was tried, 1 included."""
    UNREAD = "unread"
    """Not legible undamaged."""


@dataclass(frozen=True, slots=True)
class Flip:
    """Where one decoder loses one label to one kind of damage.

    Attributes:
        outcome: whether it does.
        last_legible: the highest severity below the first loss; None when the label is lost at 0.
        first_lost: the lowest severity that was tried and is not legible; None when all are.
        monotonic: whether the label stays lost above ``first_lost`` wherever it was tried.
    """

    outcome: FlipOutcome
    last_legible: float | None
    first_lost: float | None
    monotonic: bool


class Probes:
    """What the panel said at each severity that was tried.

    Args:
        measure: gives the panel's verdicts at a severity from 0 to 1; asked once for each.
    """

    def __init__(self, measure: Callable[[float], Verdicts]) -> None:
        self._measure = measure
        self._said: dict[float, Verdicts] = {}

    def at(self, severity: float) -> Verdicts:
        """The panel's verdicts at a severity."""
        if severity not in self._said:
            self._said[severity] = self._measure(severity)
        return self._said[severity]

    def all(self) -> Mapping[float, Verdicts]:
        """Every severity that was tried, rising, with its verdicts."""
        return dict(sorted(self._said.items()))


def find_flips(probes: Probes, severities: Iterable[float] = ()) -> tuple[Flip, ...]:
    """Where each decoder of the panel loses the label.

    Tries 0, every tenth and ``severities``, then halves the bracket around each decoder's first loss until it is no
    wider than :data:`WIDTH`. Each try asks the whole panel, so one decoder's search may find another's earlier loss.
    """
    for severity in {*_TENTHS, *severities}:
        probes.at(severity)
    decoders = range(len(probes.at(0.0)))
    while wide := next(filter(_is_wide, (_first_loss(probes.all(), decoder) for decoder in decoders)), None):
        probes.at((wide[0] + wide[1]) / 2)
    return tuple(_flip(probes.all(), decoder) for decoder in decoders)


def _is_wide(bracket: tuple[float, float] | None) -> bool:
    return bracket is not None and bracket[1] - bracket[0] > WIDTH


def _first_loss(said: Mapping[float, Verdicts], decoder: int) -> tuple[float, float] | None:
    """The severities around a decoder's first loss; None when there is none or it comes at 0."""
    before = None
    for severity, verdicts in said.items():
        if not verdicts[decoder].legible:
            return None if before is None else (before, severity)
        before = severity
    return None


def _flip(said: Mapping[float, Verdicts], decoder: int) -> Flip:
    lost = [severity for severity, verdicts in said.items() if not verdicts[decoder].legible]
    legible = [severity for severity, verdicts in said.items() if verdicts[decoder].legible]
    if not lost:
        return Flip(FlipOutcome.NEVER, legible[-1], None, monotonic=True)
    monotonic = not legible or legible[-1] < lost[0]
    bracket = _first_loss(said, decoder)
    if bracket is None:
        return Flip(FlipOutcome.UNREAD, None, lost[0], monotonic)
    return Flip(FlipOutcome.FLIPS, *bracket, monotonic)
