"""What a printer does wrong: the ribbon runs out, dots of the head are dead, ink spreads."""

from __future__ import annotations

from typing import Final

import numpy as np

from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.kind import damage_kind
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import WHITE, Pixels, part, spread_dark

_MISSING: Final = 0.15
"""Share of the code at severity 1."""
_RAGGED_MODULES: Final = 1.0
"""How uneven the end of the print is."""
_DEAD_DOTS: Final = 0.2
"""Share of the head's dots at severity 1."""
_DOTS_PER_MODULE: Final = 3
_SPREAD_MODULES: Final = 0.5


@damage_kind(
    "the ribbon ran out",
    unit="% of the code that is missing",
    measure=lambda severity: 100 * _MISSING * severity,
)
def partial_print(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Leave one side of the code white, with a ragged end."""
    turns = chance.index(4)
    pixels = np.rot90(label.pixels, turns).copy()
    code = blank_like(label, 0)
    code[label.top : label.top + label.edge, label.left : label.left + label.edge] = 1
    left = np.rot90(code, turns).any(axis=0).argmax()
    ragged = chance.field(len(pixels), 1) * part(_RAGGED_MODULES * label.module_px) // part(1) // part(1)
    end = left + round(_MISSING * severity * label.edge) + ragged
    pixels[np.arange(pixels.shape[1])[None, :] < end] = WHITE
    return np.ascontiguousarray(np.rot90(pixels, -turns))


@damage_kind(
    "dots of the print head are dead",
    unit="% of the head's dots",
    measure=lambda severity: 100 * _DEAD_DOTS * severity,
)
def dead_dots(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Draw a light line through the code, across or down, for each dead dot of a thermal print head."""
    down = chance.index(2)
    count = label.modules * _DOTS_PER_MODULE
    order = np.argsort(chance.field(1, count)[0], kind="stable")
    pixels = label.pixels.copy()
    for dot in order[: round(_DEAD_DOTS * severity * count)]:
        first = dot * label.edge // count
        last = (dot + 1) * label.edge // count
        if down:
            pixels[:, label.left + first : label.left + last] = WHITE
        else:
            pixels[label.top + first : label.top + last] = WHITE
    return pixels


@damage_kind(
    "too much ink: dark modules have grown",
    unit="modules that the ink spread on each side",
    measure=lambda severity: _SPREAD_MODULES * severity,
)
def ink_spread(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Let dark modules grow on every side."""
    del chance
    return spread_dark(label.pixels, _SPREAD_MODULES * severity * label.module_px)
