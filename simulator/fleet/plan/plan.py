"""The plan of a run: its events, for any range of devices and any stretch of time, as a function without state.

Every worker asks for its own range; put together, their answers are those for the whole fleet, however it is cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from agent.core.schedule import Schedule, phase_s
from simulator.fleet.plan.events import EVERY_KIND, Event, EventKind, EventTable
from simulator.fleet.plan.hashed_random import Floats, Indices
from simulator.fleet.plan.power import Losses, Switching, contact_of, model_of, own_losses, power_of
from simulator.fleet.plan.streams import StreamPlan, streams_of
from simulator.fleet.plan.timeline import Timeline
from simulator.fleet.scenario.fleet import ModelSettings
from simulator.fleet.scenario.kinds import BackfillSettings
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import READING, device_key

_STEP_S: Final = 1.0
_BARRIER_SLACK_S: Final = 60.0
"""A barrier that does not open in time is given up when somebody looks: a little after its time."""
_NEEDS_CONTACT: Final = frozenset({EventKind.POLL})
POLL: Final = "poll"


class Plan:
    """Every event of a run.

    Args:
        scenario: what is planned.

    Attributes:
        timeline: the phases, without waits at barriers.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.timeline = Timeline.of(scenario)
        self._ranges: dict[range, RangePlan] = {}
        self._periodic: dict[range, tuple[Periodic, ...]] = {}
        self._own: dict[range, tuple[Losses, ...]] = {}

    @property
    def longest_s(self) -> float:
        """When the last phase ends at the latest, if every barrier waits as long as it may."""
        waits_s = sum(phase.until_within_s for phase in self.scenario.phases if phase.until is not None)
        return self.end_s + waits_s + (_BARRIER_SLACK_S if waits_s else 0.0)

    @property
    def begin_s(self) -> float:
        """When the first event may be: below 0 where there is history to send."""
        if self.scenario.kind != "backfill":
            return 0.0
        return -(self.scenario.backfill or BackfillSettings()).history_s

    @property
    def end_s(self) -> float:
        """When the last phase ends."""
        return self.timeline.end_s

    @cached_property
    def models(self) -> Indices:
        """The model of each device, by its index in the scenario's list."""
        return model_of(self.scenario)

    def own_losses(self, devices: range) -> tuple[Losses, ...]:
        """When devices lose their power by themselves, until the run is over as planned."""
        if devices not in self._own:
            self._own[devices] = own_losses(self.scenario, self.end_s, devices)
        return self._own[devices]

    def reading_schedule(self, device: int) -> Schedule:
        """When a device reads its sensors, on the run's clock: what a core's own schedule is to be."""
        telemetry = self.scenario.fleet.models[int(self.models[device])].telemetry
        if telemetry.phase == "in_step":
            return Schedule(telemetry.every_s, 0.0)
        return Schedule.of(device_key(self.scenario.seed, device), READING, telemetry.every_s)

    def events(
        self, devices: range, from_s: float, to_s: float, kinds: frozenset[EventKind] = EVERY_KIND
    ) -> Iterator[Event]:
        """The events of some devices from ``from_s`` until before ``to_s``, in the order of time.

        They are made step by step as they are asked for: an hour of a hundred thousand devices is never in memory.

        Args:
            devices: their numbers, from 0.
            from_s: since the begin of the first phase.
            to_s: the same.
            kinds: which to make.
        """
        begin_s = from_s
        while begin_s < to_s:
            end_s = min(np.floor(begin_s / _STEP_S) * _STEP_S + _STEP_S, to_s)
            yield from self.table(devices, begin_s, end_s, kinds).rows()
            begin_s = end_s

    def table(self, devices: range, from_s: float, to_s: float, kinds: frozenset[EventKind] = EVERY_KIND) -> EventTable:
        """The events of a stretch as columns, all at once: for short stretches, and to be counted."""
        if devices not in self._ranges:
            self._ranges[devices] = RangePlan.of(self, devices)
        made = self._ranges[devices]
        periodic = self._periods(devices) if kinds & {EventKind.READING, EventKind.POLL} else ()
        return made.between(from_s, to_s, kinds, periodic)

    def _periods(self, devices: range) -> tuple[Periodic, ...]:
        """The schedules of a range, made when first needed: switches and commands need none of their hashes."""
        if devices not in self._periodic:
            self._periodic[devices] = tuple(periodic_of(self.scenario, self.models, devices))
        return self._periodic[devices]


@dataclass(frozen=True, slots=True)
class RangePlan:
    """What does not change while a worker goes through its range.

    Attributes:
        power, contact: of its devices.
    """

    devices: range
    end_s: float
    power: Switching
    contact: Switching
    streams: tuple[StreamPlan, ...]

    @classmethod
    def of(cls, plan: Plan, devices: range) -> RangePlan:
        """The plan of a range.

        Raises:
            ValueError: the fleet has no such devices.
        """
        scenario, timeline = plan.scenario, plan.timeline
        if devices.step != 1 or not 0 <= devices.start <= devices.stop <= scenario.fleet.devices:
            raise ValueError(f"{devices} is no range of {scenario.fleet.devices} devices")
        return cls(
            devices,
            timeline.end_s,
            power_of(scenario, timeline, devices, plan.own_losses(devices)),
            contact_of(scenario, timeline, devices),
            tuple(StreamPlan(stream, scenario, timeline) for stream in streams_of(scenario)),
        )

    def between(
        self, from_s: float, to_s: float, kinds: frozenset[EventKind], periodic: Sequence[Periodic]
    ) -> EventTable:
        """The events of a stretch of time, in order."""
        to_s = min(to_s, self.end_s)
        parts = [*self._switches(from_s, to_s), *self._periods(from_s, to_s, kinds, periodic)]
        parts += [stream.between(self.devices, from_s, to_s) for stream in self.streams if stream.stream.kind in kinds]
        table = EventTable.joined(parts)
        return table if kinds == EVERY_KIND else table.only(np.isin(table.kind, [int(kind) for kind in kinds]))

    def _switches(self, from_s: float, to_s: float) -> Iterator[EventTable]:
        for switching, on, off in (
            (self.power, EventKind.SWITCH_ON, EventKind.SWITCH_OFF),
            (self.contact, EventKind.RECONNECT, EventKind.DISCONNECT),
        ):
            device, time_s, is_on = switching.between(from_s, to_s)
            device = device + self.devices.start
            yield EventTable.of(on, time_s[is_on], device[is_on])
            yield EventTable.of(off, time_s[~is_on], device[~is_on])

    def _periods(
        self, from_s: float, to_s: float, kinds: frozenset[EventKind], periodic: Sequence[Periodic]
    ) -> Iterator[EventTable]:
        for each in periodic:
            if each.kind in kinds:
                table = each.between(from_s, to_s)
                # History was lived through before the run: nobody had switched the device off.
                on = (table.time_s < 0) | self.power.on_at(table.device, table.time_s)
                if each.kind in _NEEDS_CONTACT:
                    on &= self.contact.on_at(table.device, table.time_s)
                kept = table.only(on)
                yield EventTable.of(each.kind, kept.time_s, kept.device + self.devices.start)


@dataclass(frozen=True, slots=True)
class Periodic:
    """Devices of one model that do one thing periodically.

    Attributes:
        device: counted from the begin of the range that they belong to.
        phase_s: of each.
    """

    kind: EventKind
    period_s: float
    device: Indices
    phase_s: Floats

    def between(self, from_s: float, to_s: float) -> EventTable:
        """Every instant of a stretch of time, for devices that are never off; not ordered yet."""
        first = np.floor((from_s - self.phase_s) / self.period_s)
        turns = np.arange(math.ceil((to_s - from_s) / self.period_s) + 2)
        time_s = (first[:, None] + turns[None, :]) * self.period_s + self.phase_s[:, None]
        inside = (time_s >= from_s) & (time_s < to_s)
        device = np.broadcast_to(self.device[:, None], time_s.shape)[inside]
        return EventTable.of(self.kind, time_s[inside], device)


def periodic_of(scenario: Scenario, kinds: Indices, devices: range) -> Iterator[Periodic]:
    """What the devices of a range do by themselves.

    Args:
        scenario: of the run.
        kinds: the model of each device of the fleet.
        devices: the range.
    """
    if scenario.kind == "onboarding_storm" or scenario.arrivals:
        return
    for index, model in enumerate(scenario.fleet.models):
        local = np.flatnonzero(kinds[devices.start : devices.stop] == index).astype(np.int64)
        if not len(local):
            continue
        every_s = model.telemetry.every_s
        keys = [device_key(scenario.seed, devices.start + int(number)) for number in local]
        yield Periodic(EventKind.READING, every_s, local, _phases(keys, READING, every_s, model.telemetry.phase))
        if scenario.kind != "backfill" and not scenario.target.traits.is_pushed:
            poll_s = poll_period_s(scenario, model)
            yield Periodic(EventKind.POLL, poll_s, local, _phases(keys, POLL, poll_s, "hashed"))


def poll_period_s(scenario: Scenario, model: ModelSettings) -> float:
    """Between two polls of a device, as long as no command comes."""
    return model.poll.every_s if scenario.target.traits.polls == "periodic" else model.poll.wait_s


def _phases(keys: Sequence[str], name: str, period_s: float, phase: str) -> Floats:
    if phase == "in_step":
        return np.zeros(len(keys))
    return np.array([phase_s(key, name, period_s) for key in keys], dtype=np.float64)
