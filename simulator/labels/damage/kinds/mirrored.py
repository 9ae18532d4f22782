"""Seen from the back, through its film."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.grain import add_grain
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import Pixels, mix, part


@dataclass(frozen=True, slots=True)
class Mirrored:
    """Seen from the back through a milky film.

    Attributes:
        lost: share of the contrast lost at severity 1; below it the code is mirrored all the same.
        milk: grey of the film.
        grain: noise of the camera at severity 1, in grey levels.
    """

    lost: float = 0.97
    milk: int = 200
    grain: float = 3.0
    name: str = "mirrored"
    what: str = "seen from the back through a milky film"
    unit: str = "% of contrast lost in the film"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.lost * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        share = np.full(label.pixels.shape, part(self.lost * severity), np.int64)
        behind = mix(np.ascontiguousarray(label.pixels[:, ::-1]), blank_like(label, self.milk), share)
        return add_grain(behind, self.grain * severity, chance)
