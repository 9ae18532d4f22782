"""A lamp mirrored in the surface."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import Pixels, distances, mix, soft_edge


@dataclass(frozen=True, slots=True)
class Glare:
    """A lamp mirrored in the surface.

    Attributes:
        radius: of the spot at severity 1, as a share of the code's edge.
        softness: share of the radius over which it fades out.
    """

    radius: float = 0.6
    softness: float = 0.4
    name: str = "glare"
    what: str = "a lamp mirrored in the surface"
    unit: str = "% of the code's edge, radius"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.radius * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        x = label.left + label.edge * chance.between(0.25, 0.75)
        y = label.top + label.edge * chance.between(0.25, 0.75)
        reach = self.radius * severity * label.edge
        spot = soft_edge(distances(label.pixels, x, y), reach, reach * self.softness)
        return mix(label.pixels, blank_like(label), spot)
