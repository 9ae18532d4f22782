"""Requests and commands that come at a rate over the whole fleet, not from a device's own schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulator.fleet.plan.events import EventKind, EventTable
from simulator.fleet.plan.hashed_random import Floats, Indices, mix, shuffled, stream, unit
from simulator.fleet.plan.timeline import Timeline
from simulator.fleet.scenario.load import OpenArrivals, Spacing
from simulator.fleet.scenario.model import Scenario

_WINDOW: Final = 16.0
"""Expected arrivals of a Poisson window, in counts rather than seconds: so one table serves every rate."""
_ROUNDING: Final = 1e-6
"""How far counts and times may disagree."""
_SERIALS: Final = 64
"""More arrivals than a window ever has: the chance of a 65th is below 1e-18."""
_FLAT: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of arrivals.

    Attributes:
        kind: of its events.
        number: its place in the scenario's list.
        rate_per_s: with the whole fleet online and factor 1.
        share: of the fleet that it goes to.
    """

    kind: EventKind
    number: int
    rate_per_s: float
    spacing: Spacing
    share: float = 1.0

    @property
    def name(self) -> str:
        """The stream's name, which no other of the scenario has."""
        return f"{self.kind.name.lower()}/{self.number}"


def streams_of(scenario: Scenario) -> Iterator[Stream]:
    """The streams of a scenario. Closed arrivals are none: when they come depends on the answers."""
    for number, command in enumerate(scenario.commands):
        yield Stream(EventKind.COMMAND, number, command.rate_per_s, command.spacing, command.devices)
    for number, arrivals in enumerate(scenario.arrivals):
        if isinstance(arrivals, OpenArrivals):
            yield Stream(EventKind.ARRIVAL, number, arrivals.rate_per_s, arrivals.spacing)


class StreamPlan:
    """The events of one stream.

    Args:
        stream: which one.
        scenario: its seed and the size of its fleet.
        timeline: with its ramps and rate factors.
    """

    def __init__(self, stream_: Stream, scenario: Scenario, timeline: Timeline) -> None:
        self.stream = stream_
        self.flow = Flow.of(timeline, stream_.rate_per_s)
        self._timeline = timeline
        self._devices = scenario.fleet.devices
        self._word = stream(scenario.seed, stream_.name)
        self._whom = stream(scenario.seed, f"{stream_.name}/whom")
        self._order = self._order_of(scenario)

    def move(self, timeline: Timeline) -> None:
        """Go by another time line of the same phases from now on; which devices it goes to stays as it is."""
        self._timeline = timeline
        self.flow = Flow.of(timeline, self.stream.rate_per_s)

    def between(self, devices: range, from_s: float, to_s: float) -> EventTable:
        """The events of some devices in a stretch of time, not ordered yet."""
        time_s, serial = self._arrivals(from_s, to_s)
        inside = (time_s >= from_s) & (time_s < to_s)
        time_s, serial = time_s[inside], serial[inside]
        device = self._device_of(time_s, serial)
        mine = (device >= devices.start) & (device < devices.stop)
        return EventTable.of(self.stream.kind, time_s[mine], device[mine], self.stream.number, serial[mine])

    def _order_of(self, scenario: Scenario) -> Indices:
        """The devices in the order in which ramps bring them online: the first ones are there first."""
        ranks = shuffled(stream(scenario.seed, "ramp"), self._devices)
        order = np.empty(self._devices, dtype=np.int64)
        order[ranks] = np.arange(self._devices)
        if self.stream.share < 1.0:
            count = max(round(self.stream.share * self._devices), 1)
            order = order[np.sort(np.argsort(mix(self._whom, order), kind="stable")[:count])]
        return order

    def _device_of(self, time_s: Floats, serial: Indices) -> Indices:
        """Evenly spaced arrivals go round the devices; independent ones go to any."""
        reach = np.maximum(np.floor(self._online(time_s) * len(self._order) + 1e-9).astype(np.int64), 1)
        if self.stream.spacing == "even":
            turn = serial % reach
        else:
            turn = np.minimum((unit(mix(self._whom, serial)) * reach).astype(np.int64), reach - 1)
        device: Indices = self._order[turn]
        return device

    def _online(self, time_s: Floats) -> Floats:
        spans = self._timeline.spans
        row = np.maximum(np.searchsorted([span.begin_s for span in spans], time_s, side="right") - 1, 0)
        first, last = np.array([span.online_from for span in spans]), np.array([span.online_to for span in spans])
        offset_s = time_s - np.array([span.begin_s for span in spans])[row]
        part = np.minimum(offset_s / np.array([span.duration_s for span in spans])[row], 1.0)
        online: Floats = first[row] + (last[row] - first[row]) * part
        return online

    def _arrivals(self, from_s: float, to_s: float) -> tuple[Floats, Indices]:
        """Times and serials around a stretch; a few before and after it may be among them."""
        low, high = self.flow.count_by(from_s), self.flow.count_by(to_s)
        if self.stream.spacing == "even":
            serial = np.arange(max(math.floor(low) - 1, 0), math.ceil(high) + 1, dtype=np.int64)
            return self.flow.times_of(serial + 0.5), serial
        first, last = max(math.floor((low - _ROUNDING) / _WINDOW), 0), math.floor((high + _ROUNDING) / _WINDOW)
        window = np.arange(first, last + 1, dtype=np.int64)
        counts = np.searchsorted(_POISSON, unit(mix(self._word, window)), side="right")
        owner = np.repeat(window, counts)
        serial = owner * _SERIALS + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        places: Floats = (owner + unit(mix(self._word, owner, serial))) * _WINDOW
        return self.flow.times_of(places), serial


def _poisson_table() -> Floats:
    """The distribution function of Poisson counts with mean ``_WINDOW``."""
    chances = [math.exp(-_WINDOW)]
    for count in range(1, _SERIALS):
        chances.append(chances[-1] * _WINDOW / count)
    return np.cumsum(np.array(chances[: _SERIALS - 1]))


_POISSON: Final = _poisson_table()


@dataclass(frozen=True, slots=True)
class Flow:
    """Arrivals over time. Arrays of knots, one entry for each stretch with one slope.

    Attributes:
        begin_s: of the stretch.
        rate: arrivals per second at its begin.
        slope: how much the rate changes per second.
        before: arrivals until its begin.
        end_s: of the last stretch; nothing arrives after it.
        total: arrivals until then.
    """

    begin_s: Floats
    rate: Floats
    slope: Floats
    before: Floats
    end_s: float
    total: float

    @classmethod
    def of(cls, timeline: Timeline, rate_per_s: float) -> Flow:
        """The flow of a rate.

        Args:
            timeline: whose rate factors and ramps it follows.
            rate_per_s: with the whole fleet online and factor 1.
        """
        rows: list[tuple[float, float, float, float]] = []
        total = 0.0
        for span in timeline.spans:
            full = rate_per_s * span.rate_factor
            ramp_s = min(span.duration_s, span.end_s - span.begin_s)
            for begin_s, length_s, low, high in (
                (span.begin_s, ramp_s, span.online_from * full, span.online_to * full),
                # At a barrier nobody asks for more: what it waits for may be that nothing is open any more.
                (span.begin_s + ramp_s, span.end_s - span.begin_s - ramp_s, 0.0, 0.0),
            ):
                if length_s > 0:
                    rows.append((begin_s, low, (high - low) / length_s, total))
                    total += (low + high) / 2 * length_s
        table = np.array(rows, dtype=np.float64)
        return cls(table[:, 0], table[:, 1], table[:, 2], table[:, 3], timeline.end_s, total)

    def count_by(self, time_s: float) -> float:
        """Arrivals until ``time_s``, with fractions."""
        at_s = min(max(time_s, 0.0), self.end_s)
        row = max(int(np.searchsorted(self.begin_s, at_s, side="right")) - 1, 0)
        offset_s = at_s - self.begin_s[row]
        return float(self.before[row] + self.rate[row] * offset_s + self.slope[row] / 2 * offset_s * offset_s)

    def times_of(self, counts: npt.NDArray[np.floating[Any]]) -> Floats:
        """When each count is reached, seconds; counts beyond the total give infinity."""
        row = np.maximum(np.searchsorted(self.before, counts, side="right") - 1, 0)
        rate, slope, wanted = self.rate[row], self.slope[row], counts - self.before[row]
        # The root of slope/2 x^2 + rate x = wanted, in the form that keeps its digits where the slope is small.
        root = np.sqrt(np.maximum(rate * rate + 2.0 * slope * wanted, 0.0))
        divisor = rate + root
        offset_s = np.divide(2.0 * wanted, divisor, out=np.zeros_like(wanted), where=divisor > _FLAT)
        return np.where(counts < self.total, self.begin_s[row] + offset_s, np.inf)
