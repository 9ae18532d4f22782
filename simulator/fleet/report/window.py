"""Figures of the last seconds and counts since the begin, updated second by second."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from simulator.fleet.metrics.ages import COMMAND_AGE, command_of
from simulator.fleet.metrics.histogram import merged
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Second
from simulator.fleet.report.figures import ALL_OPERATIONS, OperationFigures, figures_by_operation
from simulator.fleet.report.formatting import ERRORS

WINDOW_S: Final = 10
HISTORY_S: Final = 240


class RecentFigures(NamedTuple):
    """One operation in the window.

    Attributes:
        figures: over the window.
        history: good answers per second, the latest last.
    """

    figures: OperationFigures
    history: tuple[float, ...]


class Window:
    """The last ten seconds in full, four minutes of rates, and counts since the begin."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=WINDOW_S)
        self._histories: dict[str, deque[tuple[int, int]]] = {}
        self._p99: deque[tuple[int, float]] = deque(maxlen=HISTORY_S)
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
            self._histories.setdefault(name, deque(maxlen=HISTORY_S)).append((second.second, figures.good))
        self._p99.append((second.second, whole.response.percentile(99) if whole.response.count else 0.0))
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
        return worst_health([second.health for second in self._seconds])

    @property
    def errors(self) -> int:
        """Errors since the begin; 429 is none."""
        return sum(self.counts[outcome] for outcome in ERRORS)

    def span_s(self) -> int:
        """Seconds that the window covers now."""
        return self._seconds[-1].second - self._seconds[0].second + 1 if self._seconds else 1

    def p99_history(self) -> tuple[float, ...]:
        """The 99th percentile of the response time of all operations, second by second; 0 where there was none."""
        return self._filled(dict(self._p99))

    def rows(self) -> tuple[RecentFigures, ...]:
        """Every operation that was seen, the busiest of the run first."""
        order = sorted(self._histories, key=lambda name: (-sum(count for _, count in self._histories[name]), name))
        return tuple(self._row(name) for name in order)

    def age(self, name: str) -> OperationFigures | None:
        """How old readings were that were accepted in the window, or commands that ended; None where none were.

        Args:
            name: ``readings.age`` or ``commands.age``.
        """
        measured = {operation for second in self._seconds for operation in second.operations}
        of_commands = [operation for operation in measured if command_of(operation)] if name == COMMAND_AGE else []
        figures = self._figures(name, of_commands or [name])
        return figures if figures.good else None

    def whole(self) -> RecentFigures:
        """The figures of all operations together."""
        names = sorted(self._histories)
        history: dict[int, int] = {}
        for name in names:
            for second, count in self._histories[name]:
                history[second] = history.get(second, 0) + count
        return RecentFigures(self._figures("all", names), self._filled(history))

    def _row(self, name: str) -> RecentFigures:
        return RecentFigures(self._figures(name, [name]), self._filled(dict(self._histories[name])))

    def _filled(self, history: Mapping[int, float]) -> tuple[float, ...]:
        """One for each second up to the latest one, 0 where nothing was."""
        end = self._seconds[-1].second if self._seconds else -1
        return tuple(history.get(second, 0) for second in range(max(0, end - HISTORY_S + 1), end + 1))

    def _figures(self, label: str, names: list[str]) -> OperationFigures:
        span_s = float(self.span_s())
        found = [
            OperationFigures.from_parts(name, (second.operations.get(name, {}) for second in self._seconds), span_s)
            for name in names
        ]
        # Of an operation alone its times are shown even where the service holds it on purpose.
        return replace(found[0], name=label) if len(found) == 1 else OperationFigures.combined(label, found, span_s)


def worst_health(parts: Sequence[GeneratorHealth]) -> GeneratorHealth:
    """The worst of each figure; ``intended`` and ``sent`` are sums, and the lag is that of all of them together."""
    if not parts:
        return GeneratorHealth()
    lag = merged([part.send_lag for part in parts])
    return GeneratorHealth(
        send_lag_p99_s=lag.percentile(99) if lag.count else max(part.send_lag_p99_s for part in parts),
        send_lag_max_s=max(part.send_lag_max_s for part in parts),
        loop_lag_max_s=max(part.loop_lag_max_s for part in parts),
        gc_pause_max_s=max(part.gc_pause_max_s for part in parts),
        steal_percent=max(part.steal_percent for part in parts),
        cpu_percent=max(part.cpu_percent for part in parts),
        intended=sum(part.intended for part in parts),
        sent=sum(part.sent for part in parts),
        undelivered=sum(part.undelivered for part in parts),
        send_lag=lag.encode(),
    )
