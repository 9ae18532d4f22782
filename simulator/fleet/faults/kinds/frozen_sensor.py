"""A frozen sensor: its readings stay what they were when the fault began, and the network works."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.fault_hooks import Read, Values
from simulator.fleet.settings import ReadingName, key
from simulator.fleet.signals.base import Individual


class FrozenSensorSettings(LastingBasis):
    """Readings stand still."""

    kind: Literal["frozen_sensor"]
    readings: tuple[ReadingName, ...] = key("which readings; without it, all", default=())


@register_fault(FrozenSensorSettings)
class FrozenSensor(DeviceFault[FrozenSensorSettings]):
    """Applies :class:`FrozenSensorSettings` to the devices of one run."""

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """What was read when the fault began."""
        if not self.acts(device, time_s):
            return values
        then = read(self.begin_s)
        names = self.settings.readings or tuple(values)
        return {name: then.get(name, value) if name in names else value for name, value in values.items()}
