"""A sensor that reads NaN, written into the body as it is: that is not JSON (RFC 8259, section 6).

A service has to refuse the whole body with 400. The device then sends its readings one by one, and sets aside those
that are refused alone; so the same readings have to be changed each time, whatever they are sent with.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final, Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.faults.json_body import close_body, identity_of, open_body
from simulator.fleet.models.fault_hooks import Body
from simulator.fleet.settings import ReadingName, Share, key
from simulator.fleet.signals.base import Individual

_VALUES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class NanSensorSettings(LastingBasis):
    """Some readings are not a number."""

    kind: Literal["nan_sensor"]
    readings: tuple[ReadingName, ...] = key("which readings; without it, the first of each", default=())
    often: Share = key("which part of the readings, by hash", default=0.1)
    value: Literal["NaN", "Infinity", "-Infinity"] = key("what is written", default="NaN")


@register_fault(NanSensorSettings, makes_refusals=True)
class NanSensor(DeviceFault[NanSensorSettings]):
    """Applies :class:`NanSensorSettings` to the devices of one run."""

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """The body with NaN in the readings that the hash chooses."""
        opened = open_body(body.content) if self.acts(device, time_s) else None
        if opened is None:
            return (body,)
        readings, array = opened
        changed = False
        for reading in readings:
            if not self.happens(device, identity_of(reading), self.settings.often):
                continue
            values = reading["sensor_data"]
            for name in self.settings.readings or tuple(values)[:1]:
                if name in values:
                    values[name] = _VALUES[self.settings.value]
                    changed = True
        if not changed:
            return (body,)
        return (dataclasses.replace(body, content=close_body(readings, array=array)),)
