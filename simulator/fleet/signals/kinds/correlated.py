"""A signal that follows another one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.fleet.settings import Delay, ReadingName, key
from simulator.fleet.signals.base import Individual, Signal, millisecond_of, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal


class CorrelatedSettings(Shape):
    """Follows another reading: ``offset + factor * reading(t - lag_s)``, with noise."""

    kind: Literal["correlated"]
    follows: ReadingName = key("the other reading of the same device")
    factor: float = key("what it is multiplied with; below 0 it goes the other way", default=1.0)
    offset: float = key("what is added", default=0.0)
    lag_s: Delay = key("how much later it follows", unit="s", default=0.0)
    noise: float = key("standard deviation of what each reading adds", ge=0, default=0.0)


@dataclass(frozen=True, slots=True)
class Correlated:
    """Follows another signal of the same device.

    Attributes:
        follows: the other one.
        lag_s: how much later.
        noise: standard deviation of what each reading adds.
    """

    name: str
    follows: Signal
    factor: float = 1.0
    offset: float = 0.0
    lag_s: float = 0.0
    noise: float = 0.0
    _salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("correlated", self.name))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        value = self.offset + self.factor * self.follows.value_at(device, time_s - self.lag_s)
        if self.noise:
            value += self.noise * device.normal(self._salt, millisecond_of(time_s))
        return value


@register_signal(CorrelatedSettings)
def make_signal(name: str, settings: CorrelatedSettings, context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    follows = context.reference(settings.follows)
    return Correlated(name, follows, settings.factor, settings.offset, settings.lag_s, settings.noise)
