"""Oil or coffee on the label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, distances, part, scale_light, soft_edge


@dataclass(frozen=True, slots=True)
class Stains:
    """Oil or coffee on it.

    Attributes:
        radius: of the largest stain at severity 1, as a share of the code's edge.
        count: how many.
        depth: share of the light that a stain takes.
    """

    radius: float = 0.3
    count: int = 6
    depth: float = 0.85
    name: str = "stains"
    what: str = "oil or coffee on it"
    unit: str = "% of the code's edge, largest radius"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.radius * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        taken = np.zeros(label.pixels.shape, np.int64)
        for number in range(self.count):
            x = label.left + label.edge * chance.between(0.05, 0.95)
            y = label.top + label.edge * chance.between(0.05, 0.95)
            reach = self.radius * severity * label.edge * (chance.between(0.4, 0.9) if number else 1.0)
            taken = np.maximum(taken, soft_edge(distances(label.pixels, x, y), reach, 0.25 * reach))
        return scale_light(label.pixels, part(1) - taken * part(self.depth) // part(1))
