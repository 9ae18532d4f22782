"""Turned in the picture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, warp


@dataclass(frozen=True, slots=True)
class Rotation:
    """Turned in the picture.

    Attributes:
        degrees: at severity 1; 45 is as far from the grid of pixels as it gets.
    """

    degrees: float = 45.0
    name: str = "rotation"
    what: str = "turned in the picture"
    unit: str = "degrees"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.degrees * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        angle = math.radians(self.measure(severity)) * (1, -1)[chance.index(2)]
        height, width = label.pixels.shape
        edge = math.ceil(math.hypot(height, width))
        along = np.arange(edge) + 0.5 - edge / 2
        down = along[:, None]
        source_x = along * math.cos(angle) + down * math.sin(angle) + width / 2 - 0.5
        source_y = down * math.cos(angle) - along * math.sin(angle) + height / 2 - 0.5
        return warp(label.pixels, source_x, source_y)
