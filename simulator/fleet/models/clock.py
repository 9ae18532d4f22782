"""How wrong the wall clocks of a model's devices are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from simulator.fleet.models.condition import WallClock
from simulator.fleet.models.settings import ClockSettings
from simulator.fleet.signals.base import Individual, period_at, salt_of

_MILLION: Final = 1e6


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

    @classmethod
    def of(cls, settings: ClockSettings, origin_s: float) -> Clock:
        """The clocks that the settings describe, of a run that begins at ``origin_s``."""
        set_every_s = math.inf if settings.set_every_s is None else settings.set_every_s
        return cls(settings.offset_s, settings.drift_ppm / _MILLION, set_every_s, origin_s)

    def clock_at(self, device: Individual, time_s: float) -> WallClock:
        """The device's clock at ``time_s``."""
        offset_s = self.offset_s * device.normal(self._offset_salt, 0) if self.offset_s else 0.0
        drift = self.drift * device.normal(self._drift_salt, 0) if self.drift else 0.0
        if not drift or math.isinf(self.set_every_s):
            return WallClock(offset_s, drift, self.origin_s)
        return WallClock(offset_s, drift, period_at(time_s, self.set_every_s, origin_s=self.origin_s).begin_s)
