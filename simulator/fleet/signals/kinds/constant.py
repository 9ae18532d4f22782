"""A signal that never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual, Signal
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal


class ConstantSettings(Shape):
    """Always the same."""

    kind: Literal["constant"]
    value: float = key("the value")


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    value: float

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        return self.value


@register_signal(ConstantSettings)
def make_signal(_name: str, settings: ConstantSettings, _context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    return Constant(settings.value)
