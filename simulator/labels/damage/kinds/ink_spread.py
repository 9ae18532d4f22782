"""Too much ink, or a print head too hot."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, spread_dark


@dataclass(frozen=True, slots=True)
class InkSpread:
    """Too much ink: dark modules have grown.

    Attributes:
        spread_modules: at severity 1.
    """

    spread_modules: float = 0.5
    name: str = "ink_spread"
    what: str = "too much ink: dark modules have grown"
    unit: str = "modules that the ink spread on each side"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.spread_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        del chance
        return spread_dark(label.pixels, self.measure(severity) * label.module_px)
