"""A quiet zone cut away."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, pad
from simulator.labels.symbol.matrix import QUIET_MODULES


@dataclass(frozen=True, slots=True)
class QuietZone:
    """Cut too close and stuck on something dark.

    Attributes:
        lost_modules: on each side at severity 1; what is beyond 4 is cut off the code.
        ground: grey of what the label is stuck on.
    """

    lost_modules: float = 5.0
    ground: int = 40
    name: str = "quiet_zone"
    what: str = "cut too close and stuck on something dark"
    unit: str = "modules of quiet zone lost on each side"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.lost_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        del chance
        left = round((QUIET_MODULES - self.measure(severity)) * label.module_px)
        label_part = label.pixels[
            label.top - left : label.top + label.edge + left, label.left - left : label.left + label.edge + left
        ]
        return pad(label_part, round(2 * QUIET_MODULES * label.module_px) - left, self.ground)
