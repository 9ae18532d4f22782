"""Moved while the shutter was open."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, convolve, part


@dataclass(frozen=True, slots=True)
class MotionBlur:
    """Moved while the shutter was open.

    Attributes:
        length_modules: the way at severity 1.
    """

    length_modules: float = 3.5
    name: str = "motion_blur"
    what: str = "moved while the shutter was open"
    unit: str = "modules moved"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.length_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        length = self.measure(severity) * label.module_px
        reach = math.ceil(length / 2)
        # How much of each pixel the way covers, from one end to the other.
        covered = [max(0.0, min(at + 0.5, length / 2) - max(at - 0.5, -length / 2)) for at in range(-reach, reach + 1)]
        weights = [part(share / length) for share in covered]
        weights[reach] += part(1) - sum(weights)
        return convolve(label.pixels, weights, axis=chance.index(2))
