"""The environment of the devices of a run: states of their models, and faults under way.

Only runs that have such things have environment; all others pay nothing for them. Times in and out are those of a
device (monotonic); models and faults go by the true time, seconds since the epoch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, Protocol

from agent.core.schedule import Schedule
from agent.core.values import Moment
from simulator.fleet.device.http_codec import Request
from simulator.fleet.models.condition import ALWAYS_ON
from simulator.fleet.models.fault_hooks import ActiveFaults, Hook, Values
from simulator.fleet.models.model import Model
from simulator.fleet.signals.base import Individual, SignalSet

_LOOKS_MAX: Final = 100
"""So many changes of state are looked through for the next reading."""


class DeviceKind(Protocol):
    """What a device is, as far as environment need it: a :class:`~simulator.fleet.device.model.DeviceModel`."""

    @property
    def signals(self) -> SignalSet:
        """The signals that its sensors read."""
        ...

    @property
    def nature(self) -> Model | None:
        """The model of the device, where that has states or a clock."""
        ...


class Environment:
    """The clock, readings, pace and bodies of a device, as its model and the faults under way make them.

    Args:
        began_s: the run's begin on the monotonic clock.
        origin_s: the same, seconds since the epoch.
        faults: under way, or to come; may be replaced.
        has_clocks: wall clocks of some devices are wrong by their model.
    """

    __slots__ = ("_ahead_s", "_clocks", "faults")

    def __init__(self, began_s: float, origin_s: float, faults: ActiveFaults, *, has_clocks: bool) -> None:
        self._ahead_s = origin_s - began_s
        self._clocks = has_clocks
        self.faults = faults

    def true_s(self, monotonic_s: float) -> float:
        """The true time, seconds since the epoch."""
        return monotonic_s + self._ahead_s

    def monotonic_s(self, true_s: float) -> float:
        """When that is on the monotonic clock."""
        return true_s - self._ahead_s

    @property
    def clocks_are_right(self) -> bool:
        """Whether every device shows the true time."""
        return not (self._clocks or self.faults.any(Hook.CONDITION))

    def moment(self, individual: Individual, kind: DeviceKind, now: Moment) -> Moment:
        """This instant as the device sees it: by its own wall clock."""
        true_s = self.true_s(now.monotonic_s)
        condition = ALWAYS_ON
        if kind.nature is not None and kind.nature.clock is not None:
            condition = replace(ALWAYS_ON, clock=kind.nature.clock.clock_at(individual, true_s)[0])
        clock = self.faults.condition(individual, true_s, condition).clock
        return Moment(now.monotonic_s, clock.at(true_s), now.boot_id)

    def values(self, individual: Individual, kind: DeviceKind, now: Moment) -> dict[str, float]:
        """What the device reads now."""
        true_s = self.true_s(now.monotonic_s)
        nature = kind.nature
        condition = ALWAYS_ON if nature is None else nature.condition_at(individual, true_s)

        def read(then_s: float) -> Values:
            if nature is None:
                return kind.signals.read(individual, then_s)
            return nature.read(individual, then_s, condition)

        return dict(self.faults.values(individual, true_s, read(true_s), read))

    def next_reading_s(self, individual: Individual, kind: DeviceKind, schedule: Schedule, after_s: float) -> float:
        """When the device reads next, on the monotonic clock.

        Args:
            individual: which device.
            kind: what it is.
            schedule: its own, as a command or the model set it; a state may have another pace.
            after_s: after this time.
        """
        at_s = self.true_s(after_s)
        place = (schedule.phase_s + self._ahead_s) % schedule.period_s / schedule.period_s
        for _ in range(_LOOKS_MAX):
            every_s, until_s = schedule.period_s, math.inf
            if kind.nature is not None and kind.nature.states:
                condition = kind.nature.condition_at(individual, at_s)
                readings = kind.nature.states.get(condition.state)
                every_s = (readings.every_s if readings else None) or every_s
                until_s = condition.until_s
            due_s = Schedule(every_s, place * every_s).next_after(at_s)
            if due_s < until_s:
                return self.monotonic_s(due_s)
            at_s = until_s
        return self.monotonic_s(at_s)

    def held_until_s(self, individual: Individual, now: Moment) -> float:
        """Nothing is handed over before; on the monotonic clock, in the past where nothing is held."""
        true_s = self.true_s(now.monotonic_s)
        return self.monotonic_s(self.faults.held_until(individual, true_s))

    def sent(self, individual: Individual, request: Request, now: Moment) -> Request:
        """What goes out instead of a request with readings."""
        if request.body is None or not self.faults.any(Hook.BODIES):
            return request
        first, *copies = self.faults.bodies(individual, self.true_s(now.monotonic_s), request.body)
        return request._replace(body=first.content, copies=tuple(copies))
