"""The wave of a day."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual, Signal, millisecond_of, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal

_DAY_S: Final = 86_400.0


class DiurnalSettings(Shape):
    """The wave of a day: highest at ``peak_hour``, lowest twelve hours later."""

    kind: Literal["diurnal"]
    mean: float = key("the day's middle")
    amplitude: float = key("from the middle to the day's top", ge=0)
    peak_hour: float = key("hour of the day, UTC, with the highest value", ge=0, lt=24, default=15.0, unit="h")
    noise: float = key("standard deviation of what each reading adds", ge=0, default=0.0)
    spread: float = key("standard deviation of the devices' means around `mean`", ge=0, default=0.0)


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


@register_signal(DiurnalSettings)
def make_signal(name: str, settings: DiurnalSettings, _context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    spread = settings.spread
    return Diurnal(name, settings.mean, settings.amplitude, settings.noise, settings.peak_hour, spread=spread)
