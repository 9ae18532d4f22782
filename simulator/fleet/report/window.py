"""Figures of the last seconds and counts since the begin, updated second by second."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from simulator.fleet.metrics.ages import COMMAND_AGE, command_of
from simulator.fleet.metrics.merging import merge_health
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.outcomes import FAILED, OutcomeClass
from simulator.fleet.record import GeneratorHealth, Second
from simulator.fleet.report.figures import Figures, by_operation

WINDOW_S: Final = 10


class Window:
    """The last seconds in full, and counts since the begin.

    Attributes:
        counts: exchanges since the begin, of all operations.
        intended, sent: requests since the begin.
    """

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque()
        self._good: Counter[str] = Counter()  # since the begin, by operation
        self.counts: Counter[OutcomeClass] = Counter()
        self.intended = 0
        self.sent = 0

    def add(self, second: Second) -> None:
        """Add the latest second."""
        self._seconds.append(second)
        while self._seconds[0].second <= second.second - WINDOW_S:
            self._seconds.popleft()
        for name, figures in by_operation(without_stages(second.operations)).items():
            self.counts += figures.counts
            self._good[name] += figures.good
        self.intended += second.health.intended
        self.sent += second.health.sent

    @property
    def second(self) -> int:
        """How many seconds the run has been going on."""
        return self._seconds[-1].second + 1 if self._seconds else 0

    @property
    def gauges(self) -> dict[str, float]:
        """The gauges of the last second."""
        return dict(self._seconds[-1].gauges) if self._seconds else {}

    @property
    def health(self) -> GeneratorHealth:
        """The worst of the window; ``intended`` and ``sent`` are the window's sums."""
        return merge_health([second.health for second in self._seconds])

    @property
    def errors(self) -> int:
        """Errors since the begin; 429 is none."""
        return sum(self.counts[outcome] for outcome in FAILED)

    @property
    def span_s(self) -> int:
        """Seconds that the window covers now."""
        return self.second - self._seconds[0].second if self._seconds else 1

    def operations(self) -> list[Figures]:
        """Every operation that was seen, the busiest of the run first; figures of the window."""
        return [self._figures(name) for name in sorted(self._good, key=lambda name: (-self._good[name], name))]

    def whole(self) -> Figures:
        """The figures of all operations together; of one alone also where the service holds it on purpose."""
        found = self.operations()
        return found[0] if len(found) == 1 else Figures.together(found, float(self.span_s))

    def age(self, name: str) -> Figures | None:
        """How old readings were that were accepted in the window, or commands that ended; None where none were.

        Args:
            name: ``readings.age`` or ``commands.age``.
        """
        measured = {operation for second in self._seconds for operation in second.operations}
        of_commands = [operation for operation in measured if command_of(operation)] if name == COMMAND_AGE else []
        found = Figures.together(map(self._figures, of_commands or [name]), float(self.span_s), name)
        return found if found.good else None

    def _figures(self, name: str) -> Figures:
        parts = (second.operations.get(name, {}) for second in self._seconds)
        return Figures.of(name, parts, float(self.span_s))
