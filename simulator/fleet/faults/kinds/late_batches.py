"""Readings that are kept back and then come all at once, long after they were made."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual, period_at


class LateBatchesSettings(LastingBasis):
    """Nothing is handed over but once in ``hold_s``."""

    kind: Literal["late_batches"]
    hold_s: Seconds = key("how long readings are kept back", unit="s", default=600.0)
    together: bool = key("all devices hand over in the same moment; else each at its own", default=False)


@register_fault(LateBatchesSettings)
class LateBatches(DeviceFault[LateBatchesSettings]):
    """Applies :class:`LateBatchesSettings` to the devices of one run."""

    def held_until(self, device: Individual, time_s: float, until_s: float) -> float:
        """The next moment at which something may be handed over."""
        if not self.acts(device, time_s):
            return until_s
        hold_s = self.settings.hold_s
        phase = 0.0 if self.settings.together else device.fraction(self.salt)
        next_s = period_at(time_s, hold_s, phase, self.begin_s).end_s
        return max(until_s, min(next_s, self.end_s))
