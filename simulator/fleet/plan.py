"""What happens when: phases, switches, commands and arrivals as a function of seed, device and time.

The events of a phase are planned in seconds since the phase's begin, so that opening a barrier only sets that begin.
The plan is the same however the devices are dealt out to workers. Other times count from the begin of the first phase.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.fleet.scenario.model import (
    Arrivals,
    BackfillScenario,
    CommandSettings,
    OnboardingScenario,
    Scenario,
    Spacing,
)
from simulator.fleet.scenario.phases import RampPhase, StepPhase

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_WINDOW: Final = 64
"""Independent arrivals are drawn in windows of so many expected ones: counts, not seconds, so it serves every rate."""
_SERIALS: Final = 4 * _WINDOW
"""More arrivals than a window ever has: 24 standard deviations above the mean."""
_ROUNDING: Final = 1e-6
_DEVICES_OF_A_WORKER: Final = 2_500
_HISTORY_OF_A_WORKER: Final = 250_000
"""Readings: some ten seconds of a core, against a target that takes them as fast as they come."""


def _chance(seed: int, name: str) -> np.random.Generator:
    """Random numbers for one purpose: independent of those for another, and the same in every worker."""
    digest = hashlib.blake2b(f"{seed}\x1f{name}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest)))


def _places(seed: int, name: str, count: int) -> Floats:
    """A random order of ``count`` devices: the place of each, evenly spaced between 0 and 1."""
    places: Floats = (_chance(seed, name).permutation(count) + 0.5) / count
    return places


# --- phases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase.

    Attributes:
        end_s: as planned, or later after a wait at its barrier.
        duration_s: as planned; the rest until ``end_s`` is the wait at its barrier.
        online_from, online_to: the share of the fleet that is switched on at its begin and at its end.
        rate_factor: multiplies the rates of arrivals and commands.
        waits: it has a barrier at its end.
    """

    index: int
    begin_s: float
    end_s: float
    duration_s: float
    online_from: float = 1.0
    online_to: float = 1.0
    rate_factor: float = 1.0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """All phases, without gaps."""

    spans: tuple[PhaseSpan, ...]

    @classmethod
    def of(cls, scenario: Scenario) -> Timeline:
        """The planned time line, without waits."""
        spans: list[PhaseSpan] = []
        for index, phase in enumerate(scenario.phases):
            begin_s = spans[-1].end_s if spans else 0.0
            before = spans[-1].online_to if spans else float(not isinstance(phase, RampPhase))
            after = phase.to if isinstance(phase, RampPhase) else before
            end_s = begin_s + phase.duration_s
            waits = phase.until is not None or isinstance(phase, StepPhase)
            spans.append(PhaseSpan(index, begin_s, end_s, phase.duration_s, before, after, phase.rate_factor, waits))
        return cls(tuple(spans))

    @property
    def end_s(self) -> float:
        """The end of the last phase."""
        return self.spans[-1].end_s

    def entered(self, index: int, at_s: float) -> Timeline:
        """The time line after phase ``index`` (1 or more) began at ``at_s``, which ends the one before it."""
        spans = [*self.spans[: index - 1], replace(self.spans[index - 1], end_s=at_s)]
        for span in self.spans[index:]:
            begin_s = spans[-1].end_s
            spans.append(replace(span, begin_s=begin_s, end_s=begin_s + span.duration_s))
        return Timeline(tuple(spans))

    def barrier_from(self, index: int) -> int:
        """The first phase from ``index`` on that has a barrier; the last phase where none has."""
        return next((span.index for span in self.spans[index:] if span.waits), len(self.spans) - 1)

    def moved(self, planned_s: float, planned: Timeline, entered: int) -> float | None:
        """The time here of what was planned for ``planned_s`` on another time line of the same phases.

        None for what comes behind a barrier that may still wait while the run is in phase ``entered``.
        """
        index = max(bisect.bisect_right([span.begin_s for span in planned.spans], planned_s) - 1, 0)
        if index > self.barrier_from(entered):
            return None
        return self.spans[index].begin_s + planned_s - planned.spans[index].begin_s


def digest_of(scenario: Scenario) -> str:
    """A hexadecimal digest of what the scenario does, including its seed; not of its description, target or limits."""
    text = scenario.model_dump_json(exclude={"description", "workers", "target", "thresholds", "abort_on"})
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def models_of(scenario: Scenario) -> list[int]:
    """The model of each device, by its index in the scenario's list: exact shares, in random order."""
    bounds = np.cumsum([model.share for model in scenario.fleet.models])
    places = _places(scenario.seed, "model", scenario.fleet.devices)
    found: list[int] = np.minimum(np.searchsorted(bounds, places, side="right"), len(bounds) - 1).tolist()
    return found


# --- events -----------------------------------------------------------------------------------------------------------


class EventKind(IntEnum):
    """The kinds of events; of events at the same time, the smaller kind comes first."""

    SWITCH_ON = 1
    COMMAND = 2
    """The operator sends to the device. ``number``: of the scenario's commands; ``serial``: counts that stream."""
    ARRIVAL = 3
    """A request without a device's core behind it. ``number``: of the scenario's arrivals."""
    SWITCH_OFF = 4


class Event(NamedTuple):
    """One thing that happens to a device, by its number in the fleet.

    Attributes:
        kind: an :class:`EventKind`, which says what ``number`` and ``serial`` are.
    """

    time_s: float
    device: int
    kind: int
    number: int = 0
    serial: int = 0


_ROW: Final = np.dtype(
    [("time_s", np.float64), ("device", np.int64), ("kind", np.int8), ("number", np.int64), ("serial", np.int64)]
)
_Table = npt.NDArray[np.void]
"""Events as rows of :data:`_ROW`."""


def _table(kind: EventKind, time_s: Floats, device: Indices, number: int = 0, serial: Indices | int = 0) -> _Table:
    """Events of one kind, not ordered yet."""
    table = np.empty(len(device), _ROW)
    columns = {"time_s": time_s, "device": device, "kind": kind, "number": number, "serial": serial}
    for name, column in columns.items():
        table[name] = column
    return table


def _ordered(tables: Iterable[_Table]) -> _Table:
    """All rows of some tables, in the order of an :class:`Event`'s members."""
    table = np.concatenate([np.empty(0, _ROW), *tables])
    return table[np.lexsort([table[name] for name in reversed(Event._fields)])]


class EventFeed:
    """Hands out the events of a range of devices: each once, in the order of time, phase after phase.

    Args:
        scenario: with phases, commands and arrivals.
        devices: the range.
    """

    def __init__(self, scenario: Scenario, devices: range) -> None:
        self._planned = self._timeline = Timeline.of(scenario)
        spans = self._timeline.spans
        self._devices = devices
        self._phase = 0  # entered last
        self._playing = 0  # whose events are taken
        self._taken_s = 0.0  # of that phase, since its begin
        ramp = _places(scenario.seed, "ramp", scenario.fleet.devices)
        own = ramp[devices.start : devices.stop]
        self._switches = [_ordered(_switches(span, devices, own)) for span in spans]
        self._streams = list(_streams(scenario, spans, ramp))

    def enter(self, phase: int, begin_s: float) -> bool:
        """Begin a phase; after a barrier its events, and all later ones, move.

        Returns:
            Whether events behind a barrier have their times only from now on.
        """
        self._phase = phase
        if phase == 0 or not self._timeline.spans[phase - 1].waits:
            return False  # it begins as planned
        self._timeline = self._timeline.entered(phase, begin_s)
        return True

    def moved(self, planned_s: float) -> float | None:
        """The time of what was planned for ``planned_s``; None while a barrier before it may still wait."""
        return self._timeline.moved(planned_s, self._planned, self._phase)

    def take(self, to_s: float) -> list[Event]:
        """The events before ``to_s`` that were not taken yet, as far as no barrier may still move them."""
        parts: list[_Table] = []
        last = self._timeline.barrier_from(self._phase)
        while True:
            span = self._timeline.spans[self._playing]
            is_over = to_s - span.begin_s >= span.duration_s
            parts += self._of_phase(span, math.inf if is_over else to_s - span.begin_s)
            if not is_over or self._playing >= last:
                return [Event._make(row) for row in _ordered(parts).tolist()]
            self._playing, self._taken_s = self._playing + 1, 0.0

    def _of_phase(self, span: PhaseSpan, to_s: float) -> Iterator[_Table]:
        from_s = self._taken_s
        if to_s > from_s:
            self._taken_s = to_s
            switches = self._switches[span.index]
            due = switches[slice(*np.searchsorted(switches["time_s"], (from_s, to_s)))].copy()
            due["time_s"] += span.begin_s
            yield due
            for stream in self._streams:
                yield stream.between(span, self._devices, from_s, min(to_s, span.duration_s))


def _switches(span: PhaseSpan, devices: range, places: Floats) -> Iterator[_Table]:
    """The devices of a range that a phase switches on and off; times since the phase's begin.

    Args:
        span: the phase.
        devices: the range.
        places: of its devices, in the order in which ramps switch the fleet on.
    """
    numbers = np.arange(devices.start, devices.stop, dtype=np.int64)
    if span.index == 0:
        on = places < span.online_from
        yield _table(EventKind.SWITCH_ON, np.zeros(int(on.sum())), numbers[on])
    if span.online_from != span.online_to:
        low, high = sorted((span.online_from, span.online_to))
        inside = (places >= low) & (places < high)
        part = (places[inside] - span.online_from) / (span.online_to - span.online_from)
        kind = EventKind.SWITCH_ON if span.online_to > span.online_from else EventKind.SWITCH_OFF
        yield _table(kind, part * span.duration_s, numbers[inside])


@dataclass(frozen=True, slots=True)
class _Stream:
    """Commands or open arrivals that come at a rate over the whole fleet.

    Attributes:
        kind: of its events.
        number: its place in the scenario's list.
        rate_per_s: with the whole fleet online and factor 1.
        devices: its receivers, in the order in which ramps switch them on.
        before: the number of events before each phase, the same however long barriers wait.
    """

    kind: EventKind
    number: int
    rate_per_s: float
    spacing: Spacing
    devices: Indices
    before: Sequence[float]
    seed: int

    def between(self, span: PhaseSpan, devices: range, from_s: float, to_s: float) -> _Table:
        """The events of some devices between two times, in seconds since the phase's begin; not ordered yet."""
        low = self.rate_per_s * span.rate_factor * span.online_from
        slope = (self.rate_per_s * span.rate_factor * span.online_to - low) / span.duration_s
        before = self.before[span.index]
        first, last = (before + low * at_s + slope / 2 * at_s * at_s for at_s in (from_s, to_s))
        places, serial, whom = self._even(first, last) if self.spacing == "even" else self._independent(first, last)
        # The root of slope/2 x^2 + low x = wanted, in the form that keeps its digits where the slope is small.
        wanted = places - before
        divisor = low + np.sqrt(np.maximum(low * low + 2.0 * slope * wanted, 0.0))
        time_s = np.divide(2.0 * wanted, divisor, out=np.full_like(wanted, -1.0), where=divisor > 1e-12)
        inside = (time_s >= from_s) & (time_s < to_s)
        time_s, serial, whom = time_s[inside], serial[inside], whom[inside]
        online = span.online_from + (span.online_to - span.online_from) * time_s / span.duration_s
        reach = np.maximum(np.floor(online * len(self.devices) + 1e-9), 1)
        turn = whom % reach if self.spacing == "even" else np.minimum(whom * reach, reach - 1)
        device = self.devices[turn.astype(np.int64)]
        mine = (device >= devices.start) & (device < devices.stop)
        return _table(self.kind, time_s[mine] + span.begin_s, device[mine], self.number, serial[mine])

    def _even(self, first: float, last: float) -> tuple[Floats, Indices, Floats]:
        """Evenly spaced arrivals: their places as counts, their serials, and whose turn it is."""
        serial = np.arange(max(math.floor(first) - 1, 0), math.ceil(last) + 1, dtype=np.int64)
        turns = serial.astype(np.float64)
        return turns + 0.5, serial, turns

    def _independent(self, first: float, last: float) -> tuple[Floats, Indices, Floats]:
        """The same for a Poisson process; a number in [0, 1) chooses the device."""
        windows = range(max(math.floor((first - _ROUNDING) / _WINDOW), 0), math.floor((last + _ROUNDING) / _WINDOW) + 1)
        places, serials, whom = [], [], []
        for window in windows:
            chance = _chance(self.seed, f"{self.kind.name.lower()}/{self.number}/{window}")
            count = chance.poisson(_WINDOW)
            places.append((window + chance.random(count)) * _WINDOW)
            serials.append(window * _SERIALS + np.arange(count))
            whom.append(chance.random(count))
        return np.concatenate(places), np.concatenate(serials), np.concatenate(whom)


def _streams(scenario: Scenario, spans: Sequence[PhaseSpan], ramp: Floats) -> Iterator[_Stream]:
    """The streams of a scenario."""
    everyone, seed = np.argsort(ramp).astype(np.int64), scenario.seed

    def stream(kind: EventKind, number: int, settings: CommandSettings | Arrivals, devices: Indices) -> _Stream:
        rate = settings.rate_per_s
        totals = [rate * s.rate_factor * (s.online_from + s.online_to) / 2 * s.duration_s for s in spans]
        before = (0.0, *itertools.accumulate(totals))
        return _Stream(kind, number, rate, settings.spacing, devices, before, seed)

    for number, command in enumerate(scenario.commands):
        count = max(round(command.devices * len(everyone)), 1)
        chosen = _chance(seed, f"command/{number}/devices").permutation(len(everyone))[:count]
        yield stream(EventKind.COMMAND, number, command, everyone[np.sort(chosen)])
    for number, arrivals in enumerate(scenario.arrivals):
        yield stream(EventKind.ARRIVAL, number, arrivals, everyone)


# --- who plays what ---------------------------------------------------------------------------------------------------


def count_workers(scenario: Scenario, cores: int | None = None) -> int:
    """The number of worker processes for ``cores``; None: the cores of this machine."""
    if isinstance(scenario, OnboardingScenario):
        return 1
    fleet, target = scenario.fleet, scenario.target
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = -(-fleet.devices // _DEVICES_OF_A_WORKER)
    if isinstance(scenario, BackfillScenario):
        fastest_s = min(model.telemetry.every_s for model in scenario.fleet.models)
        wanted = math.ceil(fleet.devices * scenario.backfill.history_s / fastest_s / _HISTORY_OF_A_WORKER)
    # Each has a connection at least.
    most = min(fleet.devices, target.pool) if target.is_pooled else fleet.devices
    if scenario.workers is not None:
        return min(scenario.workers, most)
    return max(1, min(cores, wanted, most))


def key_of(device: int, devices: int, keys: int) -> int:
    """The index of a device's key pair, the same however many workers there are."""
    return device * keys // devices


def deal(devices: int, workers: int) -> list[range]:
    """The devices of each worker: consecutive, as evenly as possible."""
    bounds = [-(-devices * worker // workers) for worker in range(workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(bounds)]


def connections_of(worker: int, workers: int, connections: int) -> int:
    """A worker's number of the shared connections: all are dealt out, and each worker has at least one."""
    return max(1, connections * (worker + 1) // workers - connections * worker // workers)
