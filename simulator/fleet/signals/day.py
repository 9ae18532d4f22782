"""Waves: of any length, and of a day."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from simulator.fleet.signals.base import Individual, millisecond_of, salt_of

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Sine:
    """A wave.

    Attributes:
        phase: where in the wave the epoch lies, as a part of it; None: each device somewhere else.
        noise: standard deviation of what each reading adds.
    """

    name: str
    mean: float
    amplitude: float
    period_s: float
    phase: float | None = None
    noise: float = 0.0
    _salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("sine", self.name))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        phase = device.fraction(self._salt) if self.phase is None else self.phase
        value = self.mean + self.amplitude * math.sin(math.tau * ((time_s / self.period_s + phase) % 1.0))
        if self.noise:
            value += self.noise * device.normal(self._salt, millisecond_of(time_s))
        return value


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A wave of one day with noise on it: warmest in the afternoon, coldest before dawn.

    Attributes:
        mean, amplitude: of the wave.
        noise: standard deviation of what each reading adds.
        peak_hour: hour of the day in UTC with the highest value.
        spread: standard deviation of the devices' own means around ``mean``.
    """

    name: str
    mean: float
    amplitude: float
    noise: float = 0.0
    peak_hour: float = 15.0
    spread: float = 0.0
    _salt: bytes = field(init=False, repr=False)
    _device_salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("diurnal", self.name))
        object.__setattr__(self, "_device_salt", salt_of("diurnal", self.name, "mean"))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        turn = (time_s / _DAY_S - self.peak_hour / 24.0) % 1.0
        value = self.mean + self.amplitude * math.cos(math.tau * turn)
        if self.noise:
            value += self.noise * device.normal(self._salt, millisecond_of(time_s))
        if self.spread:
            value += self.spread * device.normal(self._device_salt, 0)
        return value
