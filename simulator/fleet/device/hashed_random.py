"""Random numbers of a device in 8 bytes of state: number ``n`` is a hash of seed, device and ``n``."""

from __future__ import annotations

import hashlib
from typing import Final

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_TWO_53: Final = 1 / (1 << 53)


class HashedRandom:
    """Numbers in [0, 1), the same ones for the same seed and device. Called, it gives the next.

    A ``random.Random`` is 2.5 KB; this is one number. For jitter, not for secrets.

    Source: G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64).

    Args:
        seed: the run's.
        device: index in the fleet.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int, device: int) -> None:
        digest = hashlib.blake2b(f"{seed}\x1f{device}\x1fchance".encode(), digest_size=8).digest()
        self._state = int.from_bytes(digest)

    def __call__(self) -> float:
        """The next number."""
        self._state = mixed = (self._state + _GOLDEN) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) * _TWO_53
