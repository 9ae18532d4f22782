"""A device model: what its devices read, how often, with which firmware and how wrong a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulator.fleet.models.condition import WallClock
from simulator.fleet.models.firmware import Firmware
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

    def clock_at(self, device: Individual, time_s: float) -> WallClock:
        """The device's clock at ``time_s``."""
        offset_s = self.offset_s * device.normal(self._offset_salt, 0) if self.offset_s else 0.0
        drift = self.drift * device.normal(self._drift_salt, 0) if self.drift else 0.0
        if not drift or math.isinf(self.set_every_s):
            return WallClock(offset_s, drift, self.origin_s)
        return WallClock(offset_s, drift, period_at(time_s, self.set_every_s, origin_s=self.origin_s).begin_s)


@dataclass(frozen=True, slots=True)
class Model:
    """What is the same for all devices of one kind.

    Attributes:
        signals: what they read, by reading name.
        every_s: between two readings.
        firmware: None where nobody asked for one.
        clock: None where all are right.
    """

    name: str
    signals: SignalSet
    every_s: float = 60.0
    firmware: Firmware | None = None
    clock: Clock | None = None
