"""Firmware that should not have been shipped: it reports another version, restarts by itself, and measures wrong."""

from __future__ import annotations

import dataclasses
from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.faults.kinds.reboot_loop import UpDownCycle
from simulator.fleet.models.condition import Condition
from simulator.fleet.models.fault_hooks import Read, Values
from simulator.fleet.models.settings import Version
from simulator.fleet.settings import ReadingName, Seconds, key
from simulator.fleet.signals.base import Individual, salt_of


class BadFirmwareSettings(LastingBasis):
    """Devices have a version with faults; the end of the fault is the version that mends them."""

    kind: Literal["bad_firmware"]
    version: Version = key("the version that they report", default="9.9.9-bad")
    restarts_every_s: Seconds | None = key("they crash so long after each start", unit="s", default=None)
    down_s: Seconds = key("how long a restart takes", unit="s", default=5.0)
    factors: dict[ReadingName, float] = key(
        "readings that are too large or too small, and by which factor", default_factory=dict
    )


@register_fault(BadFirmwareSettings)
class BadFirmware(DeviceFault[BadFirmwareSettings]):
    """Applies :class:`BadFirmwareSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The bad version, with its restarts."""
        condition = self.bounded(device, time_s, condition)
        if not self.chooses(device) or time_s < self.begin_s:
            return condition
        up_s = self.settings.restarts_every_s
        if up_s is not None:
            phase = device.fraction(salt_of("bad_firmware", self.salt.hex()))
            turns = UpDownCycle(self.begin_s, self.end_s, up_s, self.settings.down_s, phase)
            condition = turns.condition(time_s, condition)
        if time_s >= self.end_s:
            return condition
        return dataclasses.replace(condition, factory_firmware=self.settings.version)

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """The readings times their factors."""
        if not self.settings.factors or not self.acts(device, time_s):
            return values
        return {name: value * self.settings.factors.get(name, 1.0) for name, value in values.items()}
