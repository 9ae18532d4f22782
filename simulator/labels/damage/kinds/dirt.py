"""Specks of dirt and dust."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, part


@dataclass(frozen=True, slots=True)
class Dirt:
    """Specks of dirt and dust.

    Attributes:
        covered: share of the area at severity 1.
        speck_modules: edge of a speck.
        dirt: grey of the dark specks.
        dust: grey of the light ones.
    """

    covered: float = 0.2
    speck_modules: float = 0.5
    dirt: int = 30
    dust: int = 225
    name: str = "dirt"
    what: str = "specks of dirt and dust"
    unit: str = "% of the area covered"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.covered * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        height, width = label.pixels.shape
        edge = max(1, round(self.speck_modules * label.module_px))
        cells = -(-height // edge), -(-width // edge)
        hit, light = chance.field(*cells) < part(self.covered * severity), chance.field(*cells) >= part(0.5)
        specks = np.kron(hit, np.ones((edge, edge), np.int64))[:height, :width]
        greys = np.kron(np.where(light, self.dust, self.dirt), np.ones((edge, edge), np.int64))[:height, :width]
        return np.where(specks > 0, greys, label.pixels).astype(np.uint8)
