"""Noise of a sensor in the dark."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.grain import add_grain
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a sensor in the dark.

    Attributes:
        deviation: standard deviation at severity 1, of 255 grey levels.
    """

    deviation: float = 220.0
    name: str = "noise"
    what: str = "noise of a sensor in the dark"
    unit: str = "grey levels of standard deviation"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.deviation * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return add_grain(label.pixels, self.measure(severity), chance)
