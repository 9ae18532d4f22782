"""No network at all: links are cut in one instant, connecting fails at once; they come back one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import LinkFault
from simulator.fleet.settings import Delay, key
from simulator.fleet.signals.base import Individual, salt_of

_BACK = salt_of("fault", "blackout", "back")


class BlackoutSettings(LastingBasis):
    """No link until it is over; the devices' clocks, sensors and memory go on."""

    kind: Literal["blackout"]
    recovery_s: Delay = key("over how long links come back, each at a hashed moment", unit="s", default=0.0)


@register_fault(BlackoutSettings)
class Blackout(LinkFault[BlackoutSettings]):
    """Applies :class:`BlackoutSettings` to the devices of one run."""

    def __init__(self, settings: BlackoutSettings, origin_s: float, number: int = 0) -> None:
        super().__init__(settings, origin_s, number)
        self.end_s += settings.recovery_s  # the last one is back

    def away(self, device: Individual) -> Sequence[tuple[float, float]]:
        """When the device is off: from the begin until its own moment of the recovery."""
        if not self.chooses(device):
            return ()
        back_s = self.begin_s + self.settings.duration_s + self.settings.recovery_s * device.uniform(_BACK, 0)
        return [(self.begin_s, back_s)]
