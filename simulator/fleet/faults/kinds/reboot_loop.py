"""Devices that come up, run for a moment, and go down again."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.condition import Condition, cut_power
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual, period_at, salt_of


class RebootLoopSettings(LastingBasis):
    """Devices restart again and again."""

    kind: Literal["reboot_loop"]
    up_s: Seconds = key("how long they run", unit="s", default=15.0)
    down_s: Seconds = key("how long they are gone", unit="s", default=5.0)


@register_fault(RebootLoopSettings)
class RebootLoop(DeviceFault[RebootLoopSettings]):
    """Applies :class:`RebootLoopSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """Up and down by turns, each device at its own point of the turn."""
        condition = self.bounded(device, time_s, condition)
        if not self.acts(device, time_s):
            return condition
        settings = self.settings
        phase = device.fraction(salt_of("reboot_loop", self.salt.hex()))
        turn = period_at(time_s, settings.up_s + settings.down_s, phase, self.begin_s)
        return cut_power(condition, time_s, turn.begin_s + settings.up_s, min(turn.end_s, self.end_s))
