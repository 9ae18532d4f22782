"""A wave."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from simulator.fleet.settings import Seconds, Share, key
from simulator.fleet.signals.base import Individual, Signal, millisecond_of, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal


class SineSettings(Shape):
    """A wave."""

    kind: Literal["sine"]
    mean: float = key("the middle of the wave", default=0.0)
    amplitude: float = key("from the middle to the top", ge=0, default=1.0)
    period_s: Seconds = key("length of a wave", unit="s")
    phase: Share | Literal["hashed"] = key(
        "where in the wave the epoch lies, as a part of it; `hashed`: each device somewhere else", default="hashed"
    )
    noise: float = key("standard deviation of what each reading adds", ge=0, default=0.0)


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


@register_signal(SineSettings)
def make_signal(name: str, settings: SineSettings, _context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    phase = None if settings.phase == "hashed" else float(settings.phase)
    return Sine(name, settings.mean, settings.amplitude, settings.period_s, phase, settings.noise)
