"""Out of focus."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, blur


@dataclass(frozen=True, slots=True)
class Blur:
    """Out of focus.

    Attributes:
        deviation_modules: standard deviation of the Gaussian at severity 1.
    """

    deviation_modules: float = 1.3
    name: str = "blur"
    what: str = "out of focus"
    unit: str = "modules of standard deviation"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.deviation_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        del chance
        return blur(label.pixels, self.measure(severity) * label.module_px)
