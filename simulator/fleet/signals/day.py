"""The wave of a day."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from simulator.fleet.signals.base import normal

_DAY_S: Final = 86_400.0


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
