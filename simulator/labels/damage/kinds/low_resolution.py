"""Too few pixels for its modules."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import PIXELS_PER_MODULE, CleanLabel
from simulator.labels.damage.pixels import Pixels, shrink


@dataclass(frozen=True, slots=True)
class LowResolution:
    """Too few pixels for its modules.

    Attributes:
        least: modules for each pixel at severity 0: what a clean label has.
        most: the same at severity 1.
    """

    least: float = 1 / PIXELS_PER_MODULE
    most: float = 1.0
    name: str = "low_resolution"
    what: str = "too few pixels for its modules"
    unit: str = "modules for each pixel"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.least + (self.most - self.least) * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        shift = chance.between(0, 1), chance.between(0, 1)
        return shrink(label.pixels, max(1.0, self.measure(severity) * label.module_px), shift)
