"""Measures over a sliding window of seconds, for thresholds.

Each forgets what leaves its window by subtracting it, so a window of an hour costs no more than one of ten seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from simulator.fleet.metrics.histogram import BUCKETS, Counts, Histogram, unpacked
from simulator.fleet.metrics.subjects import Source, Subject, Unit
from simulator.fleet.record import GeneratorHealth, Second, Tally


class Measure(Protocol):
    """A measure over a window of seconds."""

    def take(self, second: Second) -> None:
        """The newest second enters the window."""
        ...

    def drop(self) -> None:
        """The oldest second leaves it."""
        ...

    def value(self) -> float | None:
        """The measure over the window; None when there was nothing to measure."""
        ...


class SlidingHistogram:
    """The histogram of a window.

    Args:
        forgets: the oldest second can leave; without that, memory does not grow with the seconds.
    """

    def __init__(self, *, forgets: bool = True) -> None:
        self._forgets = forgets
        self._counts: Counts = np.zeros(BUCKETS, np.int64)
        self._parts: deque[list[tuple[Counts, Counts, float, float]]] = deque()
        self._ends: tuple[float, float] | None = None

    def take(self, texts: Sequence[str]) -> None:
        """The encoded histograms of the newest second."""
        parts = [unpacked(text) for text in texts if text]
        for buckets, counts, _, _ in parts:
            self._counts[buckets] += counts
        if self._forgets:
            self._parts.append(parts)
            return
        for _, _, shortest, longest in parts:
            before = self._ends or (shortest, longest)
            self._ends = min(before[0], shortest), max(before[1], longest)

    def drop(self) -> None:
        """The oldest second leaves."""
        for buckets, counts, _, _ in self._parts.popleft():
            self._counts[buckets] -= counts

    def histogram(self) -> Histogram:
        """All values of the window, to the last bit."""
        ends = [(shortest, longest) for parts in self._parts for _, _, shortest, longest in parts]
        ends += [self._ends] if self._ends else []
        shortest_s = min((shortest for shortest, _ in ends), default=math.nan)
        longest_s = max((longest for _, longest in ends), default=math.nan)
        return Histogram.of(self._counts, shortest_s, longest_s)


class Times:
    """Percentile, shortest, longest and mean of operations, or of the send lag."""

    def __init__(self, subject: Subject, *, forgets: bool = True) -> None:
        self._subject = subject
        self._window = SlidingHistogram(forgets=forgets)

    def take(self, second: Second) -> None:
        """The newest second enters the window. See :class:`Measure`."""
        if self._subject.source is Source.GENERATOR:
            self._window.take([second.health.send_lag])
        else:
            tallies = chosen(second, self._subject)
            self._window.take([tally.service if self._subject.service else tally.response for tally in tallies])

    def drop(self) -> None:
        """The oldest second leaves it. See :class:`Measure`."""
        self._window.drop()

    def value(self) -> float | None:
        """The measure over the window; None when there was nothing to measure. See :class:`Measure`."""
        histogram = self._window.histogram()
        if not histogram.count:
            return None
        if self._subject.measure == "percentile":
            return histogram.percentile(self._subject.percent)
        ends = {"min": histogram.min_s, "max": histogram.max_s}
        return ends[self._subject.measure] if self._subject.measure in ends else histogram.mean()


class Pieces:
    """Count, rate and share: what was chosen, of how many, in how many seconds."""

    def __init__(self, subject: Subject, unit: Unit) -> None:
        self._subject = subject
        self._unit = unit
        self._parts: deque[tuple[int, int]] = deque()
        self._chosen = self._all = 0

    def take(self, second: Second) -> None:
        """The newest second enters the window. See :class:`Measure`."""
        if self._subject.source is Source.GENERATOR:
            health = second.health
            done = health.sent if "sent" in self._subject.names else health.intended - health.undelivered
            part = (done, health.intended)
        else:
            everything = sum(
                tally.count
                for name, tallies in second.operations.items()
                if self._subject.names_operation(name)
                for tally in tallies.values()
            )
            part = (sum(tally.count for tally in chosen(second, self._subject)), everything)
        self._parts.append(part)
        self._chosen += part[0]
        self._all += part[1]

    def drop(self) -> None:
        """The oldest second leaves it. See :class:`Measure`."""
        part = self._parts.popleft()
        self._chosen -= part[0]
        self._all -= part[1]

    def value(self) -> float | None:
        """The measure over the window; None when there was nothing to measure. See :class:`Measure`."""
        if self._unit is Unit.SHARE:
            return 100.0 * self._chosen / self._all if self._all else None
        if self._unit is Unit.RATE:
            return self._chosen / len(self._parts) if self._parts else None
        return float(self._chosen)


class Levels:
    """Gauges and figures of the generator: one number a second."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        (self._name,) = subject.names
        self._values: deque[float | None] = deque()

    def take(self, second: Second) -> None:
        """The newest second enters the window. See :class:`Measure`."""
        if self._subject.source is Source.GAUGES:
            self._values.append(second.gauges.get(self._name))
        else:
            self._values.append(level_of(second.health, self._name))

    def drop(self) -> None:
        """The oldest second leaves it. See :class:`Measure`."""
        self._values.popleft()

    def value(self) -> float | None:
        """The measure over the window; None when there was nothing to measure. See :class:`Measure`."""
        values = [value for value in self._values if value is not None]
        if not values:
            return None
        if self._subject.measure == "mean":
            return math.fsum(values) / len(values)
        return {"min": min(values), "max": max(values), "last": values[-1]}[self._subject.measure]


def measure_of(subject: Subject, unit: Unit, *, forgets: bool = True) -> Measure:
    """The measure of a subject other than the audit's, over an empty window; ``forgets`` when seconds leave it."""
    is_lag = subject.source is Source.GENERATOR and "send_lag" in subject.names
    if unit is Unit.TIME and (subject.source is Source.OPERATIONS or is_lag):
        return Times(subject, forgets=forgets)
    if subject.source is Source.OPERATIONS or subject.measure == "rate":
        return Pieces(subject, unit)
    return Levels(subject)


def chosen(second: Second, subject: Subject) -> list[Tally]:
    """The tallies that a subject is about."""
    return [
        tally
        for name, tallies in second.operations.items()
        for outcome, tally in tallies.items()
        if subject.chooses(name, outcome)
    ]


def level_of(health: GeneratorHealth, name: str) -> float:
    """One of the generator's own figures: seconds, or percent."""
    return {
        "loop_lag": health.loop_lag_max_s,
        "gc_pause": health.gc_pause_max_s,
        "steal": health.steal_percent,
        "cpu": health.cpu_percent,
    }[name]
