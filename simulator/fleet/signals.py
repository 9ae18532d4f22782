"""Signals: what a virtual device's sensors read, as a function of seed, device and time.

Nothing is remembered between two calls: the same three arguments give the same number, in whatever order and in
whichever process they are asked for. Time is seconds since the epoch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

_DAY_S: Final = 86_400.0
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


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """A random walk (Brownian motion) around ``start``, which returns to it within ``span_s``.

    The walk of each span is a Brownian bridge built by halving the span and moving each midpoint (Lévy's
    construction), so any instant is reached in about ``log2(span_s / resolution_s)`` steps.

    Attributes:
        name: tells two walks of one device apart.
        start: the mean, and the value at each span's ends.
        step: standard deviation of the change within one second.
        span_s, resolution_s: length of a bridge; below the resolution the walk is a straight line.
        digits: the sensor's decimals.
    """

    name: str
    start: float
    step: float
    span_s: float = 3600.0
    resolution_s: float = 0.25
    digits: int = 2

    def value_at(self, seed: int, device: str, time_s: float) -> float:
        """See :class:`Signal`."""
        # A device begins somewhere on its own walk, not every device at the same corner of it.
        phase_s = uniform(seed, device, self.name, "phase") * self.span_s
        span, offset_s = divmod(time_s + phase_s, self.span_s)
        left_s, right_s, left, right = 0.0, self.span_s, 0.0, 0.0
        level = 0
        while right_s - left_s > self.resolution_s:
            middle_s = (left_s + right_s) / 2
            spread = self.step * math.sqrt((right_s - left_s) / 4)
            middle = (left + right) / 2 + spread * normal(seed, device, self.name, span, level, middle_s)
            if offset_s < middle_s:
                right_s, right = middle_s, middle
            else:
                left_s, left = middle_s, middle
            level += 1
        return round(self.start + left + (right - left) * (offset_s - left_s) / (right_s - left_s), self.digits)


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A wave of one day with noise on it: warmest in the afternoon, coldest before dawn.

    Attributes:
        mean, amplitude: of the wave.
        noise: standard deviation of what each reading adds.
        peak_hour: hour of the day in UTC with the highest value.
    """

    name: str
    mean: float
    amplitude: float
    noise: float = 0.0
    peak_hour: float = 15.0
    digits: int = 2

    def value_at(self, seed: int, device: str, time_s: float) -> float:
        """See :class:`Signal`."""
        turn = (time_s / _DAY_S - self.peak_hour / 24.0) % 1.0
        wave = self.amplitude * math.cos(2.0 * math.pi * turn)
        noise = self.noise * normal(seed, device, self.name, round(time_s * 1000))
        return round(self.mean + wave + noise, self.digits)


@dataclass(frozen=True, slots=True)
class Battery:
    """A battery that falls from ``full`` to ``empty`` and is changed: a saw tooth, each device at its own point.

    Attributes:
        life_s: seconds from full to empty.
    """

    name: str
    full: float = 100.0
    empty: float = 5.0
    life_s: float = 90 * _DAY_S
    digits: int = 3

    def value_at(self, seed: int, device: str, time_s: float) -> float:
        """See :class:`Signal`."""
        used = (time_s / self.life_s + uniform(seed, device, self.name, "phase")) % 1.0
        return round(self.full - used * (self.full - self.empty), self.digits)


CLIMATE: Final[Mapping[str, Signal]] = MappingProxyType(
    {
        "temperature_celsius": RandomWalk("temperature", start=21.0, step=0.09),
        "humidity_percent": RandomWalk("humidity", start=45.0, step=0.16),
        "battery_percent": Battery("battery"),
        "signal_dbm": RandomWalk("signal", start=-67.0, step=0.35, digits=0),
    }
)
"""What a virtual climate sensor reads, by reading name."""


def read_all(signals: Mapping[str, Signal], seed: int, device: str, time_s: float) -> dict[str, float]:
    """Every signal of one device at one instant: one ``sensor_data`` object."""
    return {name: signal.value_at(seed, device, time_s) for name, signal in signals.items()}
