"""Labels that are not as a reader expects them: light on dark, mirrored, among others."""

from __future__ import annotations

from typing import Final

import numpy as np

from simulator.labels.damage.chance import PortableRandom, add_grain
from simulator.labels.damage.kind import damage_kind
from simulator.labels.damage.label import CleanLabel, blank_like, draw_label
from simulator.labels.damage.pixels import WHITE, Pixels, canvas, mix, pad, part, spread_dark
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.matrix import QUIET_MODULES

_SPREAD_MODULES: Final = 0.6
_CONTRAST_LOST: Final = 0.97
_FILM_GREY: Final = 200
_GRAIN: Final = 3.0
"""Noise of the camera at severity 1, in grey levels."""
_GAP_MODULES: Final = 8.0
"""Between two codes as they should be; none is left at severity 1."""


@damage_kind(
    "light on dark, and the ink has spread",
    unit="modules that the ink spread on each side",
    measure=lambda severity: _SPREAD_MODULES * severity,
)
def inverted(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Print light on dark at every severity; what grows with the severity is the ink that spread."""
    del chance
    negative = (WHITE - label.pixels).astype(np.uint8)
    spread = spread_dark(negative, _SPREAD_MODULES * severity * label.module_px)
    return pad(spread, round(QUIET_MODULES * label.module_px))


@damage_kind(
    "seen from the back through a milky film",
    unit="% of contrast lost in the film",
    measure=lambda severity: 100 * _CONTRAST_LOST * severity,
)
def mirrored(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Mirror the label at every severity; what grows with the severity is how milky the film is."""
    share = np.full(label.pixels.shape, part(_CONTRAST_LOST * severity), np.int64)
    behind = mix(np.ascontiguousarray(label.pixels[:, ::-1]), blank_like(label, _FILM_GREY), share)
    return add_grain(behind, _GRAIN * severity, chance)


@damage_kind(
    "other labels in the same picture",
    unit="modules by which the others come nearer",
    measure=lambda severity: _GAP_MODULES * severity,
)
def several_codes(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Put three labels of the same batch beside this one, nearer with the severity."""
    gap = round((_GAP_MODULES - _GAP_MODULES * severity) * label.module_px)
    others = [_other_code(label.text, number, chance) for number in (1, 2, 3)]
    edge = max(label.edge, *(len(other) for other in others))
    margin = round(QUIET_MODULES * label.module_px)
    picture = canvas(2 * edge + gap + 2 * margin, 2 * edge + gap + 2 * margin)
    code = label.pixels[label.top : label.top + label.edge, label.left : label.left + label.edge]
    places = [(0, 0), (0, edge + gap), (edge + gap, 0), (edge + gap, edge + gap)]
    for (top, left), drawn in zip(places, [code, *others], strict=True):
        picture[margin + top :, margin + left :][: len(drawn), : len(drawn)] = drawn
    return picture


def _other_code(text: str, number: int, chance: PortableRandom) -> Pixels:
    """The code of another label of the same batch: the last digit or letter of the text is another one."""
    at = max((place for place, char in enumerate(text) if char.isalnum()), default=len(text) - 1)
    other = "0123456789"[(chance.index(10) + number) % 10]
    other = other if other != text[at] else "x"
    matrix = encode(text[:at] + other + text[at + 1 :], Candidate(0, "M", None))
    if matrix is None:  # longer than level M holds: the label was made at level L
        return canvas(1, 1)
    drawn = draw_label("", "", matrix)
    return drawn.pixels[drawn.top : drawn.top + drawn.edge, drawn.left : drawn.left + drawn.edge]
