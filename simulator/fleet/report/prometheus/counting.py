"""Measurements added up for Prometheus by phase and by the faults that were under way; no count ever falls.

A fall would be read as a restart of the program, and everything counted before as new. So each second adds to the
counts of its own phase and faults, and those of earlier phases stay as they are.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

import numpy as np

from simulator.fleet.metrics.ages import READING_AGE, command_of
from simulator.fleet.metrics.histogram import Counts, placed
from simulator.fleet.metrics.stages import FAMILY, STAGE_OPERATIONS
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, Second, Span, Tally
from simulator.fleet.report.figures import resends_of, waited_histograms
from simulator.fleet.report.run_status import phase_under_way, spans_under_way
from simulator.fleet.report.window import worst_health

HEALTH_S: Final = 15
"""The generator's health is the worst of so many seconds: read it at least as often to see each spike."""
PERIODS_MAX: Final = 64
"""Combinations of phase and faults with labels of their own; later ones count under :data:`OTHER`."""
COUNTED_GAUGES: Final = (
    "readings_sent",
    "readings_accepted",
    "commands_ordered",
    "commands_reported",
    "results_put_aside",
)
"""Gauges of a second that only grow while every worker lives; the part of one that dies is missing afterwards."""


def _steps(lowest_s: float, highest_s: float) -> tuple[float, ...]:
    steps = (1, 1.25, 1.6, 2, 2.5, 3.15, 4, 5, 6.3, 8)  # the preferred numbers R10 of ISO 3
    found = (float(f"{step * 10**decade:g}") for decade in range(-4, 4) for step in steps)
    return tuple(bound for bound in found if lowest_s <= bound <= highest_s)


TIME_BOUNDS_S: Final = _steps(0.0001, 100.0)
"""Of response and service times: each a quarter above the one before, so that no quantile is further off."""
AGE_BOUNDS_S: Final = _steps(0.001, 3150.0)
"""Of everything that may wait through an outage."""


class Period(NamedTuple):
    """When something was measured: the phase, and the faults that were under way."""

    phase: str
    fault: str


OTHER: Final = Period("other", "other")
NO_FAULT: Final = "none"
DRAIN: Final = "drain"
NO_PHASE: Final = "none"


class Key(NamedTuple):
    """What the times of one histogram are of.

    Attributes:
        kind: ``response``, ``service``, ``age``, ``command``, ``stage`` or ``lag``.
        names: of the operation or stage, or a command and its end state; empty for kinds that have none.
    """

    kind: str
    names: tuple[str, ...]
    period: Period


def period_of(phase: Span | None, faults: Iterable[Span]) -> Period:
    """The period of a second: faults that are made together are joined by ``+``, in the order of the scenario."""
    names = "+".join(dict.fromkeys(fault.name for fault in faults))
    return Period(phase.name if phase else NO_PHASE, names or NO_FAULT)


def planned_periods(phases: Sequence[Span], faults: Sequence[Span]) -> tuple[Period, ...]:
    """The periods that a run goes through when it goes as planned, with a drain behind its phases."""
    edges = {int(edge) for span in (*phases, *faults) for edge in (span.begin_s, span.end_s)}
    end_s = max((phase.end_s for phase in phases), default=0.0)
    seconds = sorted({edge + step for edge in edges for step in (-1, 0, 1)})
    played = (
        period_of(phase_under_way(phases, second), spans_under_way(faults, second))
        for second in seconds
        if 0 <= second < end_s
    )
    return tuple(dict.fromkeys((*played, Period(DRAIN, NO_FAULT))))


@dataclass(slots=True)
class Exchanges:
    """Exchanges of one operation and outcome in one period."""

    count: int = 0
    resends: dict[Attempt, int] = field(default_factory=lambda: {Attempt.AFTER_REFUSAL: 0, Attempt.AMBIGUOUS: 0})

    def add(self, tally: Tally) -> None:
        """Add those of a second."""
        again = resends_of((tally,))
        self.count += tally.count
        self.resends[Attempt.AFTER_REFUSAL] += again.after_refusal
        self.resends[Attempt.AMBIGUOUS] += again.ambiguous


@dataclass(slots=True)
class Times:
    """A histogram with fixed buckets.

    Attributes:
        bounds_s: upper bounds of the buckets but the last.
        counts: how many values each bucket has, not cumulative.
        sum_s: of all values.
    """

    bounds_s: Sequence[float]
    counts: Counts
    sum_s: float = 0.0

    @classmethod
    def empty(cls, bounds_s: Sequence[float]) -> Self:
        """Without values."""
        return cls(bounds_s, np.zeros(len(bounds_s) + 1, np.int64))

    def add(self, text: str) -> None:
        """Add an encoded histogram."""
        counts, sum_s = placed(text, self.bounds_s)
        self.counts += counts
        self.sum_s += sum_s

    def buckets(self) -> list[tuple[str, float]]:
        """Bounds and cumulative counts, as the text format has them."""
        bounds = [*(f"{bound:g}" for bound in self.bounds_s), "+Inf"]
        return list(zip(bounds, np.cumsum(self.counts).astype(float).tolist(), strict=True))


@dataclass(slots=True)
class MonotonicCount:
    """A count that goes on from where it was when the value that it follows falls, as when a worker dies."""

    total: float = 0.0
    latest: float = 0.0

    def follow(self, value: float) -> None:
        """The latest value."""
        self.total += max(0.0, value - self.latest)
        self.latest = value


class Counting:
    """Everything that was measured so far.

    Args:
        planned: periods that are to come. What is measured for the first time anywhere stands at 0 in all of them: a
            count that is there before it grows grows from 0 for Prometheus, too.

    Attributes:
        exchanges: requests by operation, outcome and period.
        readings: how many by what became of them.
        commands: how many by name, end state and period.
        times: histograms.
        requests: intended, sent and undelivered.
        second: the last one; -1 before the first.
        gauges: as they stood in the last second, without those that count.
        rising: those that count, by name.
        healths: of the last :data:`HEALTH_S` seconds.
    """

    def __init__(self, planned: Iterable[Period] = ()) -> None:
        self._planned = tuple(planned)[:PERIODS_MAX]
        self.exchanges: dict[tuple[str, OutcomeClass, Period], Exchanges] = {}
        self.readings: dict[tuple[OutcomeClass, Period], int] = {}
        self.commands: dict[tuple[str, str, Period], int] = {}
        self.times: dict[Key, Times] = {}
        self.requests = (0, 0, 0)
        self.second = -1
        self.gauges: Mapping[str, float] = {}
        self._known: set[str] = set()
        self._periods: set[Period] = set(self._planned)
        self.rising: dict[str, MonotonicCount] = {}
        self.healths: deque[GeneratorHealth] = deque(maxlen=HEALTH_S)

    def take(self, second: Second, period: Period) -> None:
        """Add a second that was measured in a period."""
        if period not in self._periods and len(self._periods) >= PERIODS_MAX:
            period = OTHER
        self._periods.add(period)
        self.add(second.operations, period)
        health = second.health
        self._time(Key("lag", (), period), (health.send_lag,), TIME_BOUNDS_S)
        intended, sent, undelivered = self.requests
        self.requests = (intended + health.intended, sent + health.sent, undelivered + health.undelivered)
        self.healths.append(health)
        self.second = second.second
        for name in COUNTED_GAUGES:
            if name in second.gauges:
                self.rising.setdefault(name, MonotonicCount()).follow(second.gauges[name])
        self.gauges = {name: value for name, value in second.gauges.items() if name not in COUNTED_GAUGES}

    def add(self, operations: Operations, period: Period) -> None:
        """Add measurements: exchanges, ages, and stages of commands."""
        for name, classes in operations.items():
            if name == READING_AGE:
                for outcome, tally in classes.items():
                    self.readings[outcome, period] = self.readings.get((outcome, period), 0) + tally.count
                self._time(Key("age", (), period), waited_histograms(classes), AGE_BOUNDS_S)
            elif (command := command_of(name)) is not None:
                count = sum(tally.count for tally in classes.values())
                self.commands[*command, period] = self.commands.get((*command, period), 0) + count
                self._time(Key("command", command, period), waited_histograms(classes), AGE_BOUNDS_S)
            elif name in STAGE_OPERATIONS:
                stage = name.removeprefix(f"{FAMILY}.")
                self._time(Key("stage", (stage,), period), waited_histograms(classes), AGE_BOUNDS_S)
            else:
                self._expect(name)
                for outcome, tally in classes.items():
                    self.exchanges.setdefault((name, outcome, period), Exchanges()).add(tally)
                for measure in ("response", "service"):
                    self._time(Key(measure, (name,), period), waited_histograms(classes, measure), TIME_BOUNDS_S)

    def _expect(self, operation: str) -> None:
        if operation not in self._known:
            self._known.add(operation)
            for period in self._planned:
                for outcome in OutcomeClass:
                    self.exchanges[operation, outcome, period] = Exchanges()

    def _time(self, key: Key, texts: Iterable[str], bounds_s: Sequence[float]) -> None:
        for text in filter(None, texts):
            if key not in self.times:
                for each in (*self._planned, key.period):
                    self.times.setdefault(key._replace(period=each), Times.empty(bounds_s))
            self.times[key].add(text)

    @property
    def health(self) -> GeneratorHealth:
        """The worst of the last :data:`HEALTH_S` seconds."""
        return worst_health(list(self.healths))

    @property
    def ledgers(self) -> Mapping[str, float]:
        """What the devices' ledgers count, by name; as of the latest second of each worker."""
        return {name: rising.total for name, rising in self.rising.items()}

    def copy(self) -> Counting:
        """One that stays as it is, to be read while this one goes on."""
        other = copy.copy(self)
        other.exchanges = {key: Exchanges(each.count, dict(each.resends)) for key, each in self.exchanges.items()}
        other.readings, other.commands = dict(self.readings), dict(self.commands)
        other.times = {key: replace(times, counts=times.counts.copy()) for key, times in self.times.items()}
        other.rising = {name: replace(rising) for name, rising in self.rising.items()}
        other.healths = self.healths.copy()
        return other
