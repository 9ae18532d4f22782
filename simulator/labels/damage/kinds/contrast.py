"""Faded print."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.grain import add_grain
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import Pixels, mix, part


@dataclass(frozen=True, slots=True)
class Contrast:
    """Faded: dark and light come near each other.

    Attributes:
        lost: share of the contrast lost at severity 1.
        middle: the grey that all fades to.
        grain: noise of the camera at severity 1, in grey levels.
    """

    lost: float = 0.99
    middle: int = 160
    grain: float = 3.0
    name: str = "contrast"
    what: str = "faded: dark and light come near each other"
    unit: str = "% of contrast lost"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.lost * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        share = np.full(label.pixels.shape, part(self.lost * severity), np.int64)
        faded = mix(label.pixels, blank_like(label, self.middle), share)
        return add_grain(faded, self.grain * severity, chance)
