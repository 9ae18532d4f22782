"""Batteries that are empty all at once: the devices are off until somebody charges them."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.condition import Condition, PowerLoss, cut_power
from simulator.fleet.settings import Delay, key
from simulator.fleet.signals.base import Individual, salt_of


class DeadBatterySettings(LastingBasis):
    """Devices lose their power and get it back at the end."""

    kind: Literal["dead_battery"]
    spread_s: Delay = key("over how long they die and come back, each at a hashed moment", unit="s", default=0.0)


@register_fault(DeadBatterySettings)
class DeadBattery(DeviceFault[DeadBatterySettings]):
    """Applies :class:`DeadBatterySettings` to the devices of one run."""

    def __init__(self, settings: DeadBatterySettings, origin_s: float, number: int = 0) -> None:
        super().__init__(settings, origin_s, number)
        self.end_s += settings.spread_s  # the last one is back

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The device's condition: without power from its own moment on, and with it again at the end."""
        if not self.chooses(device):
            return condition
        later_s = self.settings.spread_s * device.fraction(salt_of("dead_battery", self.salt.hex()))
        begin_s = self.begin_s + later_s
        return cut_power(condition, time_s, begin_s, begin_s + self.settings.duration_s, PowerLoss.BATTERY)
