"""One side in the shadow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.grain import add_grain
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, part, scale_light


@dataclass(frozen=True, slots=True)
class UnevenLight:
    """One side in the shadow.

    Attributes:
        lost: share of the light that the dark side loses at severity 1.
        grain: noise of the camera at severity 1, in grey levels.
    """

    lost: float = 0.99
    grain: float = 3.0
    name: str = "uneven_light"
    what: str = "one side in the shadow"
    unit: str = "% of light lost on the dark side"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.lost * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        angle = chance.between(0, 2 * math.pi)
        height, width = label.pixels.shape
        x, y = label.centre
        across = np.arange(width) + 0.5 - x
        down = (np.arange(height) + 0.5 - y)[:, None]
        way = (across * math.cos(angle) + down * math.sin(angle)) / label.edge + 0.5
        light = np.rint((1 - self.lost * severity * np.clip(way, 0, 1)) * part(1)).astype(np.int64)
        return add_grain(scale_light(label.pixels, light), self.grain * severity, chance)
