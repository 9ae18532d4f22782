"""Other labels in the same picture."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel, draw_label
from simulator.labels.damage.pixels import Pixels, canvas
from simulator.labels.symbol.matrix import QUIET_MODULES
from simulator.labels.symbol.proving import Candidate, encode


@dataclass(frozen=True, slots=True)
class SeveralCodes:
    """Other labels in the same picture.

    Attributes:
        gap_modules: between two codes as they should be; none is left at severity 1.
    """

    gap_modules: float = 8.0
    name: str = "several_codes"
    what: str = "other labels in the same picture"
    unit: str = "modules by which the others come nearer"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.gap_modules * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        gap = round((self.gap_modules - self.measure(severity)) * label.module_px)
        others = [_neighbour(label.text, number, chance) for number in (1, 2, 3)]
        edge = max(label.edge, *(len(other) for other in others))
        margin = round(QUIET_MODULES * label.module_px)
        picture = canvas(2 * edge + gap + 2 * margin, 2 * edge + gap + 2 * margin)
        code = label.pixels[label.top : label.top + label.edge, label.left : label.left + label.edge]
        places = [(0, 0), (0, edge + gap), (edge + gap, 0), (edge + gap, edge + gap)]
        for (top, left), drawn in zip(places, [code, *others], strict=True):
            picture[margin + top :, margin + left :][: len(drawn), : len(drawn)] = drawn
        return picture


def _neighbour(text: str, number: int, chance: Chance) -> Pixels:
    """The code of another label of the same batch: the last digit or letter of the text is another one."""
    at = max((place for place, char in enumerate(text) if char.isalnum()), default=len(text) - 1)
    other = "0123456789"[(chance.index(10) + number) % 10]
    other = other if other != text[at] else "x"
    matrix = encode(text[:at] + other + text[at + 1 :], Candidate(0, "M", None))
    if matrix is None:  # longer than level M holds: the label was made at level L
        return canvas(1, 1)
    drawn = draw_label("", "", matrix)
    return drawn.pixels[drawn.top : drawn.top + drawn.edge, drawn.left : drawn.left + drawn.edge]
