"""Compressed as JPEG."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, shrink


@dataclass(frozen=True, slots=True)
class Jpeg:
    """Sent through a messenger, compressed.

    Attributes:
        pixels_per_module: what the messenger scales it down to.
        worst: JPEG quality at severity 1.
        best: JPEG quality at severity 0.
    """

    pixels_per_module: float = 1.7
    worst: int = 1
    best: int = 90
    name: str = "jpeg"
    what: str = "sent through a messenger, compressed"
    unit: str = "quality points lost of 100"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 - self.best + (self.best - self.worst) * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        del chance
        small = shrink(label.pixels, max(1.0, label.module_px / self.pixels_per_module))
        file = io.BytesIO()
        Image.fromarray(small).save(file, "JPEG", quality=round(100 - self.measure(severity)))
        with Image.open(file) as opened:
            return np.asarray(opened.convert("L"))
