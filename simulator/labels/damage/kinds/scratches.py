"""Scratched down to the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import Pixels, mix, soft_edge


@dataclass(frozen=True, slots=True)
class Scratches:
    """Scratched down to the paper.

    Attributes:
        width_modules: of each scratch at severity 1.
        count: how many.
        paper: grey of what comes to light.
    """

    width_modules: float = 1.6
    count: int = 9
    paper: int = 240
    name: str = "scratches"
    what: str = "scratched down to the paper"
    unit: str = "modules, width of a scratch"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.width_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        height, width = label.pixels.shape
        across = np.arange(width) + 0.5
        down = (np.arange(height) + 0.5)[:, None]
        nearest = np.full((height, width), float(width))
        for _ in range(self.count):
            x = label.left + label.edge * chance.between(0.1, 0.9)
            y = label.top + label.edge * chance.between(0.1, 0.9)
            angle, half = chance.between(0, math.pi), label.edge * chance.between(0.1, 0.35)
            along = np.clip((across - x) * math.cos(angle) + (down - y) * math.sin(angle), -half, half)
            off_x, off_y = across - x - along * math.cos(angle), down - y - along * math.sin(angle)
            nearest = np.minimum(nearest, np.sqrt(off_x**2 + off_y**2))
        bare = soft_edge(nearest, self.measure(severity) * label.module_px / 2 + 0.5, 1.0)
        return mix(label.pixels, blank_like(label, self.paper), bare)
