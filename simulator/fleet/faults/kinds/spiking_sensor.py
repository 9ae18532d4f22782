"""A sensor whose readings jump for one moment, up or down."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.fault_hooks import Read, Values
from simulator.fleet.settings import ReadingName, Share, key
from simulator.fleet.signals.base import Individual, millisecond_of, salt_of


class SpikingSensorSettings(LastingBasis):
    """Some readings jump."""

    kind: Literal["spiking_sensor"]
    readings: tuple[ReadingName, ...] = key("which readings; without it, all", default=())
    often: Share = key("which part of the readings jumps, by hash", default=0.05)
    height: float = key("by how much, up or down", default=100.0)
    sign: Literal["up", "down", "either"] = Field(default="either", description="which way")


@register_fault(SpikingSensorSettings)
class SpikingSensor(DeviceFault[SpikingSensorSettings]):
    """Applies :class:`SpikingSensorSettings` to the devices of one run."""

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """The readings, some of them ``height`` away."""
        if not self.acts(device, time_s):
            return values
        which = millisecond_of(time_s)
        settings = self.settings
        spiked = dict(values)
        for name in settings.readings or tuple(values):
            chance = device.uniform(salt_of("spike", name, self.salt.hex()), which)
            if name in spiked and chance < settings.often:
                # The half of the chance that is left decides the way.
                up = settings.sign == "up" or (settings.sign == "either" and chance < settings.often / 2)
                spiked[name] += settings.height if up else -settings.height
        return spiked
