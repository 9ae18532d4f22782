"""Signals: what a virtual device's sensors read, as a function of seed, device and time.

Nothing is remembered between two calls: the same three arguments give the same number, in whatever order and in
whichever process they are asked for. Time is seconds since the epoch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Final, Protocol

_TWO_64: Final = float(1 << 64)


class Signal(Protocol):
    """One named reading over time."""

    def value_at(self, seed: int, device: str, time_s: float) -> float:
        """The reading of ``device`` at ``time_s``, a finite number."""
        ...


def uniform(seed: int, *parts: object) -> float:
    """A number in (0, 1) that depends on the arguments alone and looks random."""
    text = "\x1f".join([str(seed), *map(str, parts)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 0.5) / _TWO_64


def normal(seed: int, *parts: object) -> float:
    """A number of the standard normal distribution that depends on the arguments alone (Box and Muller, 1958)."""
    radius = math.sqrt(-2.0 * math.log(uniform(seed, *parts, "radius")))
    return radius * math.cos(2.0 * math.pi * uniform(seed, *parts, "angle"))


def read_all(signals: Mapping[str, Signal], seed: int, device: str, time_s: float) -> dict[str, float]:
    """Every signal of one device at one instant: one ``sensor_data`` object."""
    return {name: signal.value_at(seed, device, time_s) for name, signal in signals.items()}
