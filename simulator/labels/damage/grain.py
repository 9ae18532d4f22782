"""A camera's noise, which no picture is without."""

from __future__ import annotations

from simulator.labels.damage.chance import BELL_DEVIATION, Chance
from simulator.labels.damage.pixels import Pixels, part, to_pixels


def add_grain(pixels: Pixels, deviation: float, chance: Chance) -> Pixels:
    """The picture with bell-shaped noise of this standard deviation in grey levels."""
    scale = part(deviation)
    grain = chance.bell(*pixels.shape) * scale // (BELL_DEVIATION * part(1))
    return to_pixels(pixels + grain)
