"""Figures of the last seconds and counts since the begin, updated second by second."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from simulator.fleet.metrics.ages import COMMAND_AGE, command_of
from simulator.fleet.metrics.merging import merge_health
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Second
from simulator.fleet.report.figures import ALL_OPERATIONS, OperationFigures, figures_by_operation
from simulator.fleet.report.formatting import ERRORS

WINDOW_S: Final = 10


class Window:
    """The last ten seconds in full, and counts since the begin."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=WINDOW_S)
        self._good: Counter[str] = Counter()  # since the begin, by operation
        self.counts: dict[OutcomeClass, int] = dict.fromkeys(OutcomeClass, 0)
        """Exchanges since the begin, of all operations."""
        self.intended = 0
        self.sent = 0

    def take(self, second: Second) -> None:
        """Add the latest second."""
        self._seconds.append(second)
        while self._seconds[0].second <= second.second - WINDOW_S:
            self._seconds.popleft()
        exchanges = figures_by_operation(without_stages(second.operations), 1.0)
        whole = OperationFigures.combined(ALL_OPERATIONS, exchanges.values(), 1.0)
        for outcome, count in whole.counts.items():
            self.counts[outcome] += count
        for name, figures in exchanges.items():
            self._good[name] += figures.good
        self.intended += second.health.intended
        self.sent += second.health.sent

    @property
    def latest(self) -> Second | None:
        """The last second; None before the first."""
        return self._seconds[-1] if self._seconds else None

    @property
    def gauges(self) -> Mapping[str, float]:
        """The gauges of the last second."""
        return self._seconds[-1].gauges if self._seconds else {}

    @property
    def health(self) -> GeneratorHealth:
        """The worst of the window; ``intended`` and ``sent`` are the window's sums."""
        return merge_health([second.health for second in self._seconds])

    @property
    def errors(self) -> int:
        """Errors since the begin; 429 is none."""
        return sum(self.counts[outcome] for outcome in ERRORS)

    def span_s(self) -> int:
        """Seconds that the window covers now."""
        return self._seconds[-1].second - self._seconds[0].second + 1 if self._seconds else 1

    def rows(self) -> tuple[OperationFigures, ...]:
        """Every operation that was seen, the busiest of the run first; figures of the window."""
        order = sorted(self._good, key=lambda name: (-self._good[name], name))
        return tuple(self._figures(name, [name]) for name in order)

    def age(self, name: str) -> OperationFigures | None:
        """How old readings were that were accepted in the window, or commands that ended; None where none were.

        Args:
            name: ``readings.age`` or ``commands.age``.
        """
        measured = {operation for second in self._seconds for operation in second.operations}
        of_commands = [operation for operation in measured if command_of(operation)] if name == COMMAND_AGE else []
        figures = self._figures(name, of_commands or [name])
        return figures if figures.good else None

    def whole(self) -> OperationFigures:
        """The figures of all operations together."""
        return self._figures(ALL_OPERATIONS, sorted(self._good))

    def _figures(self, label: str, names: list[str]) -> OperationFigures:
        span_s = float(self.span_s())
        found = [
            OperationFigures.from_parts(name, (second.operations.get(name, {}) for second in self._seconds), span_s)
            for name in names
        ]
        # Of an operation alone its times are shown even where the service holds it on purpose.
        return replace(found[0], name=label) if len(found) == 1 else OperationFigures.combined(label, found, span_s)
