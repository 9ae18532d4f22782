"""A battery that empties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulator.fleet.signals.base import uniform

_DAY_S: Final = 86_400.0


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
