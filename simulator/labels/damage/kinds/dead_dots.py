"""Light lines: dots of a thermal print head are dead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import WHITE, Pixels


@dataclass(frozen=True, slots=True)
class DeadDots:
    """Dots of the print head are dead.

    Attributes:
        dead: share of the dots at severity 1.
        dots_per_module: of the print head.
    """

    dead: float = 0.2
    dots_per_module: int = 3
    name: str = "dead_dots"
    what: str = "dots of the print head are dead"
    unit: str = "% of the head's dots"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.dead * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        down = chance.index(2)
        count = label.modules * self.dots_per_module
        order = np.argsort(chance.field(1, count)[0], kind="stable")
        pixels = label.pixels.copy()
        for dot in order[: round(self.dead * severity * count)]:
            first = dot * label.edge // count
            last = (dot + 1) * label.edge // count
            if down:
                pixels[:, label.left + first : label.left + last] = WHITE
            else:
                pixels[label.top + first : label.top + last] = WHITE
        return pixels
