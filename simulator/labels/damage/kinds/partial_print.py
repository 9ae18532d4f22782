"""A part that was never printed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import WHITE, Pixels, part


@dataclass(frozen=True, slots=True)
class PartialPrint:
    """The ribbon ran out.

    Attributes:
        missing: share of the code at severity 1.
        ragged_modules: how uneven the end is.
    """

    missing: float = 0.15
    ragged_modules: float = 1.0
    name: str = "partial_print"
    what: str = "the ribbon ran out"
    unit: str = "% of the code that is missing"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return 100 * self.missing * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        turns = chance.index(4)
        pixels = np.rot90(label.pixels, turns).copy()
        left = np.rot90(_code_mask(label), turns).any(axis=0).argmax()
        ragged = chance.field(len(pixels), 1) * part(self.ragged_modules * label.module_px) // part(1) // part(1)
        end = left + round(self.missing * severity * label.edge) + ragged
        pixels[np.arange(pixels.shape[1])[None, :] < end] = WHITE
        return np.ascontiguousarray(np.rot90(pixels, -turns))


def _code_mask(label: CleanLabel) -> Pixels:
    mask = blank_like(label, 0)
    mask[label.top : label.top + label.edge, label.left : label.left + label.edge] = 1
    return mask
