"""A fold across the label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, part, scale_light, soft_edge, warp


@dataclass(frozen=True, slots=True)
class Crease:
    """Folded: a strip is gone in the fold.

    Attributes:
        lost_modules: at severity 1.
        shade: share of the light that the fold takes.
    """

    lost_modules: float = 4.0
    shade: float = 0.5
    name: str = "crease"
    what: str = "folded: a strip is gone in the fold"
    unit: str = "modules gone in the fold"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.lost_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        upright = chance.index(2)
        pixels = label.pixels if upright else label.pixels.T
        at = (label.left if upright else label.top) + label.edge * chance.between(0.3, 0.7)
        lost = self.measure(severity) * label.module_px
        height, width = pixels.shape
        columns = np.arange(width, dtype=float)
        columns += np.where(columns + 0.5 < at, 0.0, lost)
        ys = np.broadcast_to(np.arange(height, dtype=float)[:, None], (height, width))
        folded = warp(pixels, np.broadcast_to(columns, (height, width)), ys)
        fold = soft_edge(np.abs(np.arange(width) + 0.5 - at), 0.5 * label.module_px, 0.5 * label.module_px)
        shaded = scale_light(folded, part(1) - fold[None, :] * part(self.shade * severity) // part(1))
        return shaded if upright else np.ascontiguousarray(shaded.T)
