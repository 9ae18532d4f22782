"""A device model: what its devices read, how often, and in which condition each of them is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from simulator.fleet.models.condition import ALWAYS_ON, Condition, PowerLoss, WallClock
from simulator.fleet.models.firmware import Firmware
from simulator.fleet.models.power import PowerSource, Supply
from simulator.fleet.signals.base import Individual, SignalSet, period_at, salt_of


@dataclass(frozen=True, slots=True)
class Clock:
    """How the wall clocks of a model's devices differ.

    Attributes:
        offset_s, drift: standard deviations; ``drift`` in seconds for each second.
        set_every_s: how often the clock is set; infinity: at ``origin_s`` only.
        origin_s: a time when all were set, seconds since the epoch.
    """

    offset_s: float
    drift: float
    set_every_s: float = math.inf
    origin_s: float = 0.0
    _offset_salt: bytes = field(init=False, repr=False)
    _drift_salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_offset_salt", salt_of("clock", "offset"))
        object.__setattr__(self, "_drift_salt", salt_of("clock", "drift"))

    def clock_at(self, device: Individual, time_s: float) -> tuple[WallClock, float]:
        """The device's clock at ``time_s``, and until when it runs so."""
        offset_s = self.offset_s * device.normal(self._offset_salt, 0) if self.offset_s else 0.0
        drift = self.drift * device.normal(self._drift_salt, 0) if self.drift else 0.0
        if not drift or math.isinf(self.set_every_s):
            return WallClock(offset_s, drift, self.origin_s), math.inf
        turn = period_at(time_s, self.set_every_s, origin_s=self.origin_s)
        return WallClock(offset_s, drift, turn.begin_s), turn.end_s


@dataclass(frozen=True, slots=True)
class StateReadings:
    """What a device in one state reads and how often; ``every_s`` None: as often as in its model."""

    signals: SignalSet
    every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """What is the same for all devices of one kind.

    Attributes:
        signals: what they read, by reading name.
        every_s: between two readings.
        states: where a state changes readings or pace, by state.
        sources: what takes their power from time to time.
        firmware: None where nobody asked for one.
        clock: None where all are right.
        origin_s: the run's begin, seconds since the epoch. Power and states go by the time since then, so that a
            scenario plays the same whenever it is played; readings go by the time of day.
    """

    name: str
    signals: SignalSet
    every_s: float = 60.0
    states: Mapping[str, StateReadings] = field(default_factory=dict)
    sources: tuple[PowerSource, ...] = ()
    firmware: Firmware | None = None
    clock: Clock | None = None
    origin_s: float = 0.0

    @property
    def eventful(self) -> bool:
        """Whether a condition can ever be another than :data:`~simulator.fleet.models.condition.ALWAYS_ON`."""
        return bool(self.sources or self.firmware or self.clock)

    def condition_at(self, device: Individual, time_s: float) -> Condition:
        """The condition of a device, and from when to when it lasts.

        Args:
            device: which.
            time_s: seconds since the epoch.
        """
        if not self.eventful:
            return ALWAYS_ON
        since_s, until_s, booted_s, state = -math.inf, math.inf, -math.inf, ""
        off: PowerLoss | None = None
        for source in self.sources:
            supply = self._supply_at(source, device, time_s)
            since_s, until_s = max(since_s, supply.since_s), min(until_s, supply.until_s)
            booted_s = max(booted_s, supply.restored_s)
            state = supply.state or state
            if supply.off:
                off = off or source.loss
        clock, clock_until_s = self.clock.clock_at(device, time_s) if self.clock else (ALWAYS_ON.clock, math.inf)
        return Condition(
            since_s=since_s,
            until_s=min(until_s, clock_until_s),
            off=off,
            booted_s=booted_s,
            state=state,
            clock=clock,
        )

    def _supply_at(self, source: PowerSource, device: Individual, time_s: float) -> Supply:
        """What a source does, in seconds since the epoch."""
        origin_s = self.origin_s
        supply = source.supply_at(device, time_s - origin_s)
        if supply.until_s + origin_s <= time_s:
            # The last binary digit was lost on the way between the clocks: this is the end of it.
            supply = source.supply_at(device, supply.until_s)
        return replace(
            supply,
            since_s=supply.since_s + origin_s,
            until_s=supply.until_s + origin_s,
            restored_s=supply.restored_s + origin_s,
        )

    def read(self, device: Individual, time_s: float, condition: Condition = ALWAYS_ON) -> dict[str, float]:
        """What its sensors read at ``time_s``: one ``sensor_data`` object, which may be empty."""
        readings = self.states.get(condition.state)
        return (readings.signals if readings else self.signals).read(device, time_s)

    def interval_s(self, condition: Condition = ALWAYS_ON) -> float:
        """Between two readings in this condition."""
        readings = self.states.get(condition.state)
        return readings.every_s if readings and readings.every_s else self.every_s
