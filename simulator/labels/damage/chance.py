"""Randomness with the same values on every machine and in every version of numpy.

numpy promises the raw bits of a bit generator for good, but not what its distributions make of them (NEP 19). So only
raw bits are taken, and what is made of them is whole-number arithmetic of our own.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.labels.damage.pixels import Pixels, part, to_pixels

_BITS: Final = 53
_STEPS: Final = float(2**_BITS)
_LANE: Final = 0xFFFF
_LANES: Final = 4


class PortableRandom:
    """A stream of random numbers that its name alone decides.

    Args:
        words: the name: equal words, equal numbers.
    """

    def __init__(self, *words: object) -> None:
        digest = hashlib.sha256("\0".join(map(str, words)).encode()).digest()
        self._bits = np.random.PCG64(int.from_bytes(digest))

    def between(self, low: float, high: float) -> float:
        """A number from ``low`` (included) to ``high``, all equally likely."""
        raw = int(self._bits.random_raw())
        return low + (high - low) * ((raw >> (64 - _BITS)) / _STEPS)

    def index(self, size: int) -> int:
        """A whole number from 0 to ``size - 1``."""
        return min(size - 1, int(self.between(0, size)))

    def field(self, height: int, width: int) -> NDArray[np.int64]:
        """A number from 0 to 65535 for each pixel, all equally likely; shape ``(height, width)``."""
        return (self._raw(height * width) & np.uint64(_LANE)).astype(np.int64).reshape(height, width)

    def bell(self, height: int, width: int) -> NDArray[np.int64]:
        """A bell-shaped number around 0 for each pixel, standard deviation 37837; shape ``(height, width)``.

        The sum of four numbers from 0 to 65535, less their mean: as good as normal within three deviations.
        """
        raw = self._raw(height * width)
        total = np.zeros(height * width, np.int64)
        for lane in range(_LANES):
            total += ((raw >> np.uint64(16 * lane)) & np.uint64(_LANE)).astype(np.int64)
        return (total - _LANES * _LANE // 2).reshape(height, width)

    def _raw(self, count: int) -> NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(count), np.uint64)


BELL_DEVIATION: Final = 37837
"""Standard deviation of :meth:`PortableRandom.bell`: 65536 * sqrt(4 / 12)."""


def add_grain(pixels: Pixels, deviation: float, chance: PortableRandom) -> Pixels:
    """The picture with a camera's noise: bell-shaped, of this standard deviation in grey levels."""
    grain = chance.bell(*pixels.shape) * part(deviation) // (BELL_DEVIATION * part(1))
    return to_pixels(pixels + grain)
