"""Chance without a generator: numbers that depend on their arguments alone, for whole arrays at once.

The mixing function is that of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
generators", 2014). Whole-number arithmetic, so every machine and every order of asking gives the same bits.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_GAMMA: Final = 0x9E3779B97F4A7C15
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_MASK: Final = (1 << 64) - 1
_UNIT: Final = 2.0**-53


def stream(seed: int, name: str) -> int:
    """A number for one use of chance, so that two uses have nothing in common."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\x1f{name}".encode(), digest_size=8).digest())


def mix(word: int, *numbers: Words | Indices) -> Words:
    """Scrambled 64-bit words, one for each row of numbers.

    Args:
        word: of the stream.
        numbers: whole numbers of one shape, or of shapes that fit (a device's number, a counter).
    """
    state: Words = np.asarray(word & _MASK, dtype=np.uint64)
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2**64
        for column in numbers:
            state = _scramble(state + np.uint64(_GAMMA) + column.astype(np.uint64))
    return state


def unit(words: Words) -> Floats:
    """Numbers in [0, 1) out of words, 53 bits each."""
    return (words >> np.uint64(11)).astype(np.float64) * _UNIT


def shuffled(word: int, count: int) -> Indices:
    """The numbers 0 to ``count`` - 1 in an order of chance: the rank of each."""
    numbers = np.arange(count, dtype=np.int64)
    order = np.argsort(mix(word, numbers), kind="stable")
    ranks = np.empty(count, dtype=np.int64)
    ranks[order] = numbers
    return ranks


def _scramble(state: Words) -> Words:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
