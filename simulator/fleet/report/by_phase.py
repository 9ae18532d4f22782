"""What was measured in each phase, ages included. One phase is in memory at a time, however long the run was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from simulator.fleet.record import Operations, Second, Span
from simulator.fleet.report.timeline import Totals


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """One phase.

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
            self._totals.take(second)

    def _end(self) -> None:
        operations = self._totals.operations
        if self._now is not None and operations:
            self.phases.append(PhaseFigures(self._now.name, operations, self._now.begin_s))
        self._now, self._totals = None, Totals()
