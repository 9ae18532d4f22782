"""Printed light on dark."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import WHITE, Pixels, pad, spread_dark
from simulator.labels.symbol.matrix import QUIET_MODULES


@dataclass(frozen=True, slots=True)
class Inverted:
    """Light on dark, and the ink has spread.

    Attributes:
        spread_modules: at severity 1; below it the code is inverted all the same.
    """

    spread_modules: float = 0.6
    name: str = "inverted"
    what: str = "light on dark, and the ink has spread"
    unit: str = "modules that the ink spread on each side"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.spread_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        del chance
        negative = (WHITE - label.pixels).astype(np.uint8)
        spread = spread_dark(negative, self.measure(severity) * label.module_px)
        return pad(spread, round(QUIET_MODULES * label.module_px))
