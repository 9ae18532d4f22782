"""A signal without memory: each reading is drawn by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual, Signal, millisecond_of, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal

_UNIFORM_REACH: Final = math.sqrt(12.0)
"""Width of a uniform distribution with a standard deviation of 1."""


class NoiseSettings(Shape):
    """Each reading on its own, without memory."""

    kind: Literal["noise"]
    distribution: Literal["normal", "uniform"] = key("the distribution", default="normal")
    mean: float = key("its mean", default=0.0)
    deviation: float = key(
        "its standard deviation; `uniform` reaches from mean - 1.732 x deviation to mean + 1.732 x deviation",
        ge=0,
        default=1.0,
    )


@dataclass(frozen=True, slots=True)
class Noise:
    """Each millisecond on its own.

    Attributes:
        uniform: evenly spread instead of normally.
    """

    name: str
    mean: float
    deviation: float
    uniform: bool = False
    _salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("noise", self.name))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        which = millisecond_of(time_s)
        if self.uniform:
            return self.mean + self.deviation * _UNIFORM_REACH * (device.uniform(self._salt, which) - 0.5)
        return self.mean + self.deviation * device.normal(self._salt, which)


@register_signal(NoiseSettings)
def make_signal(name: str, settings: NoiseSettings, _context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    return Noise(name, settings.mean, settings.deviation, uniform=settings.distribution == "uniform")
