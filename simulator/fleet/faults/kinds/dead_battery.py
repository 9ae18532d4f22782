"""Batteries that are empty all at once: the devices are off until somebody charges them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.condition import Condition, PowerLoss
from simulator.fleet.models.fault_hooks import Hook
from simulator.fleet.settings import Delay, key
from simulator.fleet.signals.base import Individual, salt_of


class DeadBatterySettings(LastingBasis):
    """Devices lose their power and get it back at the end."""

    kind: Literal["dead_battery"]
    spread_s: Delay = key("over how long they die and come back, each at a hashed moment", unit="s", default=0.0)


@register_fault(DeadBatterySettings)
class DeadBattery(DeviceFault[DeadBatterySettings]):
    """Applies :class:`DeadBatterySettings` to the devices of one run."""

    hooks: ClassVar[frozenset[Hook]] = frozenset({Hook.CONDITION})

    def __init__(self, settings: DeadBatterySettings, origin_s: float, number: int = 0) -> None:
        super().__init__(settings, origin_s, number)
        self.end_s += settings.spread_s  # the last one is back

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """Without power from this device's moment on, and with it again at the end."""
        if not self.chooses(device):
            return condition
        later_s = self.settings.spread_s * device.fraction(salt_of("dead_battery", self.salt.hex()))
        begin_s = self.begin_s + later_s
        end_s = begin_s + self.settings.duration_s
        if time_s < begin_s:
            return dataclasses.replace(condition, until_s=min(condition.until_s, begin_s))
        if time_s < end_s:
            return dataclasses.replace(
                condition,
                since_s=max(condition.since_s, begin_s),
                until_s=min(condition.until_s, end_s),
                off=condition.off or PowerLoss.BATTERY,
            )
        return dataclasses.replace(
            condition, since_s=max(condition.since_s, end_s), booted_s=max(condition.booted_s, end_s)
        )
