"""When each device has power and a connection: ramps and storms, added up for each device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.fleet.plan.hashed_random import Floats, Indices, shuffled, stream
from simulator.fleet.plan.timeline import PhaseSpan
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.phases import StormPhase

_TICKS_PER_S: Final = 100_000
_TICK_BITS: Final = 42
"""A year has fewer than 2 ** 42 ticks of 10 microseconds, and 2 ** 21 devices have room above them."""

Causes = tuple[Indices, Floats, Indices]
"""Device (counted from the range's begin), time, +1 for a cause to be off that begins or -1 for one that ends."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What takes the power or the connection of some devices; one row for each time.

    Attributes:
        device: counted from the range's begin.
        since_s, until_s: when it begins and ends.
    """

    device: Indices
    since_s: Floats
    until_s: Floats

    def changes(self) -> Iterator[Causes]:
        """The begins, and the ends."""
        yield _changes(self.device, self.since_s, 1)
        yield _changes(self.device, self.until_s, -1)


def _joined(causes: Sequence[Causes]) -> Causes:
    if not causes:
        return np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
    device, time_s, change = (np.concatenate(column) for column in zip(*causes, strict=True))
    return device, time_s, change


def add_up(causes: Sequence[Causes], held: Indices) -> tuple[Indices, Floats, npt.NDArray[np.bool_]]:
    """When devices are switched: a device is off as long as at least one cause holds.

    Args:
        causes: that begin and end, in any order.
        held: how many causes hold before the first of them, for each device; counted on in place.

    Returns:
        The switches, by device and then by time: device, time, what to.
    """
    device, time_s, change = _joined(causes)
    # Where one cause ends as the next begins, the device stays off: +1 comes first.
    order = np.lexsort((-change, time_s, device))
    device, time_s, change = device[order], time_s[order], change[order]
    if not len(device):
        return device, time_s, np.empty(0, bool)
    first = np.concatenate(([True], device[1:] != device[:-1]))
    start = np.maximum.accumulate(np.where(first, np.arange(len(device)), 0))
    running = np.cumsum(change)
    before = np.where(start > 0, running[start - 1], 0)
    off_after = running - before + held[device]
    was_off = np.where(first, held[device], np.concatenate(([0], off_after[:-1]))) > 0
    is_off = off_after > 0
    last = np.concatenate((first[1:], [True]))
    held[device[last]] = off_after[last]
    turns = was_off != is_off
    return device[turns], time_s[turns], ~is_off[turns]


def chosen(seed: int, name: str, share: float, count: int) -> npt.NDArray[np.bool_]:
    """Exactly this share of ``count`` devices, by chance.

    Args:
        seed: of the scenario.
        name: of the choice; another name chooses others.
        share: 0 to 1.
        count: devices of the whole fleet.
    """
    return (shuffled(stream(seed, name), count) + 0.5) / count < share


def model_of(scenario: Scenario) -> Indices:
    """The model of each device of the fleet, by index in the scenario's list: exact shares, dealt out by chance."""
    count = scenario.fleet.devices
    bounds = np.cumsum([model.share for model in scenario.fleet.models])
    places = (shuffled(stream(scenario.seed, "model"), count) + 0.5) / count
    return np.minimum(np.searchsorted(bounds, places, side="right"), len(bounds) - 1).astype(np.int64)


def ramp_places(scenario: Scenario, devices: range) -> Floats:
    """The place of each device of a range in the order in which ramps switch the fleet on, above 0 and below 1."""
    count = scenario.fleet.devices
    places: Floats = (shuffled(stream(scenario.seed, "ramp"), count)[devices.start : devices.stop] + 0.5) / count
    return places


def phase_power(scenario: Scenario, span: PhaseSpan, devices: range, places: Floats) -> Iterator[Causes]:
    """What a phase does to the power of the devices of a range; seconds since the phase's begin.

    Args:
        scenario: that is planned.
        span: the phase; when it begins does not matter.
        devices: the range.
        places: of its devices, see :func:`ramp_places`.
    """
    local = np.arange(len(devices), dtype=np.int64)
    if span.index == 0 and span.online_from > 0:
        yield _changes(local[places < span.online_from], np.zeros(np.count_nonzero(places < span.online_from)), -1)
    low, high = sorted((span.online_from, span.online_to))
    if high > low:
        inside = (places >= low) & (places < high)
        part = (places[inside] - span.online_from) / (span.online_to - span.online_from)
        sign = -1 if span.online_to > span.online_from else 1
        yield _changes(local[inside], part * span.duration_s, sign)
    for each in phase_storms(scenario, span, devices, "power"):
        yield from each.changes()


def phase_storms(scenario: Scenario, span: PhaseSpan, devices: range, loss: str) -> Iterator[Losses]:
    """What a storm takes of the devices of a range: ``power`` or ``connection``; seconds since the phase's begin."""
    phase = scenario.phases[span.index]
    if isinstance(phase, StormPhase) and phase.loss == loss:
        yield _storm(scenario, span, phase, devices)


def _storm(scenario: Scenario, span: PhaseSpan, phase: StormPhase, devices: range) -> Losses:
    device, begin_s = [], []
    for wave in range(phase.waves):
        hit = chosen(scenario.seed, f"storm/{span.index}/{wave}", phase.share, scenario.fleet.devices)
        local = np.flatnonzero(hit[devices.start : devices.stop]).astype(np.int64)
        device.append(local)
        begin_s.append(np.full(len(local), wave * phase.duration_s / phase.waves))
    since_s = np.concatenate(begin_s)
    return Losses(np.concatenate(device), since_s, since_s + phase.away_s)


def _changes(device: Indices, time_s: Floats, sign: int) -> Causes:
    return device, time_s, np.full(len(device), sign, dtype=np.int64)
