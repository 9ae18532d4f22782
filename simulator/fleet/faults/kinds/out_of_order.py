"""Batches whose readings are not in the order of their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual, millisecond_of


class OutOfOrderSettings(LastingBasis):
    """The readings of a batch go out in another order."""

    kind: Literal["out_of_order"]
    order: Literal["reversed", "shuffled"] = key("which order", default="shuffled")


@register_fault(OutOfOrderSettings)
class OutOfOrder(DeviceFault[OutOfOrderSettings]):
    """Applies :class:`OutOfOrderSettings` to the devices of one run."""

    def order(self, device: Individual, time_s: float, order: Sequence[int]) -> Sequence[int]:
        """The order in which waiting readings are sent."""
        if not self.acts(device, time_s):
            return order
        if self.settings.order == "reversed":
            return order[::-1]
        which = millisecond_of(time_s) << 10
        return sorted(order, key=lambda place: device.uniform(self.salt, which + place))
