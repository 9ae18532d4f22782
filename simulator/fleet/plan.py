"""What happens when: phases, switches, commands and arrivals as a function of seed, device and time.

Everything that a phase does is planned in seconds since the phase's begin, so that opening a barrier is nothing but
"the phase begins now". Which worker plays a device changes nothing of it. Times without a word count from the begin of
the first phase.
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
    """Random numbers for one use: those of two uses have nothing in common, and every worker draws the same."""
    digest = hashlib.blake2b(f"{seed}\x1f{name}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest)))


def _places(seed: int, name: str, count: int) -> Floats:
    """The place of each of so many devices in a random order, above 0 and below 1, evenly apart."""
    places: Floats = (_chance(seed, name).permutation(count) + 0.5) / count
    return places


# --- phases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase.

    Attributes:
        end_s: the planned one, or later where its barrier kept the run waiting.
        duration_s: as planned: what is left until ``end_s`` is the wait at its barrier.
        online_from, online_to: share of the fleet that is switched on at its begin and its end.
        rate_factor: of arrivals and commands.
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
    """All phases, one after the other without a gap."""

    spans: tuple[PhaseSpan, ...]

    @classmethod
    def of(cls, scenario: Scenario) -> Timeline:
        """The time line as it is planned, without waits."""
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
        """The time line on which a phase behind the first began at ``at_s``: the one before it lasted until then."""
        spans = [*self.spans[: index - 1], replace(self.spans[index - 1], end_s=at_s)]
        for span in self.spans[index:]:
            begin_s = spans[-1].end_s
            spans.append(replace(span, begin_s=begin_s, end_s=begin_s + span.duration_s))
        return Timeline(tuple(spans))

    def barrier_from(self, index: int) -> int:
        """The first phase from this one on that has a barrier; the last one where none has."""
        return next((span.index for span in self.spans[index:] if span.waits), len(self.spans) - 1)

    def moved(self, planned_s: float, planned: Timeline, entered: int) -> float | None:
        """When that happens here which was planned for ``planned_s`` on another time line of the same phases.

        None for what is planned behind a barrier that may still wait in phase ``entered``.
        """
        index = max(bisect.bisect_right([span.begin_s for span in planned.spans], planned_s) - 1, 0)
        if index > self.barrier_from(entered):
            return None
        return self.spans[index].begin_s + planned_s - planned.spans[index].begin_s


def digest_of(scenario: Scenario) -> str:
    """Of the scenario and its seed, hexadecimal; neither of what describes it nor of where it is played."""
    text = scenario.model_dump_json(exclude={"description", "workers", "target", "thresholds", "abort_on"})
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def models_of(scenario: Scenario) -> list[int]:
    """The model of each device, by its index in the scenario's list: exact shares, dealt out by chance."""
    bounds = np.cumsum([model.share for model in scenario.fleet.models])
    places = _places(scenario.seed, "model", scenario.fleet.devices)
    found: list[int] = np.minimum(np.searchsorted(bounds, places, side="right"), len(bounds) - 1).tolist()
    return found


# --- events -----------------------------------------------------------------------------------------------------------


class EventKind(IntEnum):
    """What happens; of one instant, the smaller one first."""

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
    """The events of a range of devices as a worker plays them: each once, in the order of time, phase after phase.

    Args:
        scenario: that is played.
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
        """This phase begins: where the one before it waited at its barrier, the phases move.

        Returns:
            Whether what was behind a barrier has its time only now.
        """
        self._phase = phase
        if phase == 0 or not self._timeline.spans[phase - 1].waits:
            return False  # it begins when it was planned to, and everything of it has its time
        self._timeline = self._timeline.entered(phase, begin_s)
        return True

    def moved(self, planned_s: float) -> float | None:
        """When that happens which was planned for ``planned_s``; None while a barrier before it may still wait."""
        return self._timeline.moved(planned_s, self._planned, self._phase)

    def take(self, to_s: float) -> list[Event]:
        """The events until before ``to_s`` that were not taken yet and have their time."""
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
    """Which devices of a range a phase switches on and off; times since the phase's begin.

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
        devices: that it goes to, those first that ramps bring online first.
        before: how much comes before each phase, the same however long barriers wait.
    """

    kind: EventKind
    number: int
    rate_per_s: float
    spacing: Spacing
    devices: Indices
    before: Sequence[float]
    seed: int

    def between(self, span: PhaseSpan, devices: range, from_s: float, to_s: float) -> _Table:
        """The events of some devices in a stretch of a phase, in seconds since its begin; not ordered yet."""
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
        """Arrivals around a stretch, evenly apart: their places as counts, their serials, and whose turn it is."""
        serial = np.arange(max(math.floor(first) - 1, 0), math.ceil(last) + 1, dtype=np.int64)
        turns = serial.astype(np.float64)
        return turns + 0.5, serial, turns

    def _independent(self, first: float, last: float) -> tuple[Floats, Indices, Floats]:
        """The same of a Poisson process, whose arrivals go to any device: to which is a number in [0, 1)."""
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
    """How many processes make the load, on so many cores; None asks this machine."""
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
    """The number of the key pair that a device uses, the same however many workers there are."""
    return device * keys // devices


def deal(devices: int, workers: int) -> list[range]:
    """The devices of each worker: neighbours, as evenly as they go."""
    bounds = [-(-devices * worker // workers) for worker in range(workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(bounds)]


def connections_of(worker: int, workers: int, connections: int) -> int:
    """How many of a run's shared connections a worker has: all are dealt out, and each has one at least."""
    return max(1, connections * (worker + 1) // workers - connections * worker // workers)
