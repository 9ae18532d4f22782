"""Stuck on a cylinder, such as a pipe or a bottle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, warp


@dataclass(frozen=True, slots=True)
class Curvature:
    """Stuck on a cylinder.

    Attributes:
        degrees: that the code covers at severity 1.
    """

    degrees: float = 179.0
    name: str = "curvature"
    what: str = "stuck on a cylinder"
    unit: str = "degrees of the cylinder that the code covers"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.degrees * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        upright = chance.index(2)
        pixels = label.pixels if upright else label.pixels.T
        middle = label.centre[0] if upright else label.centre[1]
        radius = label.edge / math.radians(self.measure(severity))
        height, width = pixels.shape
        seen = (np.arange(width) + 0.5 - middle) / radius
        around = np.where(np.abs(seen) < 1, np.arcsin(np.clip(seen, -1, 1)) * radius, 10.0 * width)
        xs = np.broadcast_to(around + middle - 0.5, (height, width))
        ys = np.broadcast_to(np.arange(height, dtype=float)[:, None], (height, width))
        bent = warp(pixels, xs, ys)
        return bent if upright else np.ascontiguousarray(bent.T)
