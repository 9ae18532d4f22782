"""What the last seconds and the whole run so far come to, out of one second after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.ages import COMMAND_AGE, command_of
from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.stages import without_stages
from simulator.fleet.metrics.subjects import WAITED
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Second, Tally
from simulator.fleet.report.figures import waited
from simulator.fleet.report.words import ERRORS, HELD

SHOWN_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
WINDOW_S: Final = 10
HISTORY_S: Final = 240


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation in the window.

    Attributes:
        ok_per_s, limited_per_s, errors_per_s: means over the window.
        response_s, service_s: one for each of :data:`SHOWN_PERCENTILES`; NaN without any.
        history: good answers per second, the latest last.
    """

    name: str
    ok_per_s: float
    limited_per_s: float
    errors_per_s: float
    response_s: tuple[float, ...]
    service_s: tuple[float, ...]
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
        exchanges = without_stages(second.operations)
        for name, classes in exchanges.items():
            for outcome, tally in classes.items():
                self.counts[outcome] += tally.count
            count = classes[OutcomeClass.OK].count if OutcomeClass.OK in classes else 0
            self._histories.setdefault(name, deque(maxlen=HISTORY_S)).append((second.second, count))
        good = [text for name, kinds in exchanges.items() if name not in HELD for text in waited(kinds)]
        self._p99.append((second.second, merged(good).percentile(99) if any(good) else 0.0))
        self.intended += second.health.intended
        self.sent += second.health.sent

    @property
    def latest(self) -> Second | None:
        """The last second; None before the first."""
        return self._seconds[-1] if self._seconds else None

    @property
    def gauges(self) -> Mapping[str, float]:
        """As they stood in the last second."""
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

    def rows(self) -> tuple[OperationRow, ...]:
        """Every operation that was seen, the busiest of the run first."""
        order = sorted(self._histories, key=lambda name: (-sum(count for _, count in self._histories[name]), name))
        return tuple(self._row(name) for name in order)

    def age(self, name: str) -> OperationRow | None:
        """How old readings were that were accepted in the window, or commands that ended; None where none were.

        Args:
            name: ``readings.age`` or ``commands.age``.
        """
        measured = {operation for second in self._seconds for operation in second.operations}
        of_commands = [operation for operation in measured if command_of(operation)] if name == COMMAND_AGE else []
        row = self._made(name, of_commands or [name], ())
        return row if row.ok_per_s else None

    def whole(self) -> OperationRow:
        """All operations together."""
        names = sorted(self._histories)
        history: dict[int, int] = {}
        for name in names:
            for second, count in self._histories[name]:
                history[second] = history.get(second, 0) + count
        return self._made("all", names, self._filled(history))

    def _row(self, name: str) -> OperationRow:
        return self._made(name, [name], self._filled(dict(self._histories[name])))

    def _filled(self, history: Mapping[int, float]) -> tuple[float, ...]:
        """One for each second up to the latest one, 0 where nothing was."""
        end = self._seconds[-1].second if self._seconds else -1
        return tuple(history.get(second, 0) for second in range(max(0, end - HISTORY_S + 1), end + 1))

    def _made(self, label: str, names: list[str], history: tuple[float, ...]) -> OperationRow:
        counts = dict.fromkeys(OutcomeClass, 0)
        response, service = Histogram(), Histogram()
        for name, outcome, tally in self._tallies(names):
            counts[outcome] += tally.count
            if outcome in WAITED and (len(names) == 1 or name not in HELD):
                response.add_encoded(tally.response)
                service.add_encoded(tally.service)
        span_s = self.span_s()
        return OperationRow(
            label,
            counts[OutcomeClass.OK] / span_s,
            counts[OutcomeClass.LIMITED] / span_s,
            sum(counts[outcome] for outcome in ERRORS) / span_s,
            response.percentiles(SHOWN_PERCENTILES),
            service.percentiles(SHOWN_PERCENTILES),
            history,
        )

    def _tallies(self, names: list[str]) -> Iterator[tuple[str, OutcomeClass, Tally]]:
        for second in self._seconds:
            for name in names:
                for outcome, tally in second.operations.get(name, {}).items():
                    yield name, outcome, tally


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
