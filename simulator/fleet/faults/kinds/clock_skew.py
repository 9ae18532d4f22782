"""Clocks that are wrong, each by its own amount, and run at their own rate."""

from __future__ import annotations

from typing import Final, Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.condition import Condition, shift_clock
from simulator.fleet.settings import Delay, key
from simulator.fleet.signals.base import Individual, salt_of

_MILLION: Final = 1e6


class ClockSkewSettings(LastingBasis):
    """Wall clocks are off while it lasts."""

    kind: Literal["clock_skew"]
    offset_s: Delay = key("most that a clock is off, either way; each by a hashed part of it", unit="s", default=60.0)
    drift_ppm: float = key(
        "most that a clock gains or loses, in millionths; each a hashed part of it", ge=0, le=500_000, default=0.0
    )


@register_fault(ClockSkewSettings, sets_clocks=True)
class ClockSkew(DeviceFault[ClockSkewSettings]):
    """Applies :class:`ClockSkewSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The device's condition meanwhile: a wrong clock."""
        condition = self.bounded(device, time_s, condition)
        if not self.acts(device, time_s):
            return condition
        offset = 2.0 * device.fraction(salt_of("clock_skew", "offset", self.salt.hex())) - 1.0
        drift = 2.0 * device.fraction(salt_of("clock_skew", "drift", self.salt.hex())) - 1.0
        return shift_clock(
            condition,
            self.settings.offset_s * offset,
            drift=self.settings.drift_ppm / _MILLION * drift,
            since_s=self.begin_s,
        )
