"""What happens to the label itself: cut too close, scratched, stained, dirty."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.kind import damage_kind
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import Pixels, distances, mix, pad, part, scale_light, soft_edge
from simulator.labels.symbol.matrix import QUIET_MODULES

_CUT_MODULES: Final = 5.0
"""Quiet zone lost on each side at severity 1; what is beyond 4 is cut off the code."""
_DARK_GROUND: Final = 40
"""Grey of what the label is stuck on."""
_SCRATCH_MODULES: Final = 1.6
_SCRATCHES: Final = 9
_SCRATCHED_GREY: Final = 240
_STAIN_RADIUS: Final = 0.3
"""Of the largest stain at severity 1, as a share of the code's edge."""
_STAINS: Final = 6
_STAIN_DEPTH: Final = 0.85
"""Share of the light that a stain takes."""
_DIRT_COVERED: Final = 0.2
_SPECK_MODULES: Final = 0.5
_DIRT_GREY: Final = 30
_DUST_GREY: Final = 225


@damage_kind(
    "cut too close and stuck on something dark",
    unit="modules of quiet zone lost on each side",
    measure=lambda severity: _CUT_MODULES * severity,
)
def quiet_zone(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Cut the quiet zone on all sides and put a dark ground around it."""
    del chance
    left = round((QUIET_MODULES - _CUT_MODULES * severity) * label.module_px)
    label_part = label.pixels[
        label.top - left : label.top + label.edge + left, label.left - left : label.left + label.edge + left
    ]
    return pad(label_part, round(2 * QUIET_MODULES * label.module_px) - left, _DARK_GROUND)


@damage_kind(
    "scratched down to the paper",
    unit="modules, width of a scratch",
    measure=lambda severity: _SCRATCH_MODULES * severity,
)
def scratches(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Draw straight scratches, in which the light paper shows, across the code."""
    height, width = label.pixels.shape
    across = np.arange(width) + 0.5
    down = (np.arange(height) + 0.5)[:, None]
    nearest = np.full((height, width), float(width))
    for _ in range(_SCRATCHES):
        x = label.left + label.edge * chance.between(0.1, 0.9)
        y = label.top + label.edge * chance.between(0.1, 0.9)
        angle, half = chance.between(0, math.pi), label.edge * chance.between(0.1, 0.35)
        along = np.clip((across - x) * math.cos(angle) + (down - y) * math.sin(angle), -half, half)
        off_x, off_y = across - x - along * math.cos(angle), down - y - along * math.sin(angle)
        nearest = np.minimum(nearest, np.sqrt(off_x**2 + off_y**2))
    bare = soft_edge(nearest, _SCRATCH_MODULES * severity * label.module_px / 2 + 0.5, 1.0)
    return mix(label.pixels, blank_like(label, _SCRATCHED_GREY), bare)


@damage_kind(
    "oil or coffee on it",
    unit="% of the code's edge, largest radius",
    measure=lambda severity: 100 * _STAIN_RADIUS * severity,
)
def stains(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Put round stains that take light on the code."""
    taken = np.zeros(label.pixels.shape, np.int64)
    for number in range(_STAINS):
        x = label.left + label.edge * chance.between(0.05, 0.95)
        y = label.top + label.edge * chance.between(0.05, 0.95)
        reach = _STAIN_RADIUS * severity * label.edge * (chance.between(0.4, 0.9) if number else 1.0)
        taken = np.maximum(taken, soft_edge(distances(label.pixels, x, y), reach, 0.25 * reach))
    return scale_light(label.pixels, part(1) - taken * part(_STAIN_DEPTH) // part(1))


@damage_kind(
    "specks of dirt and dust",
    unit="% of the area covered",
    measure=lambda severity: 100 * _DIRT_COVERED * severity,
)
def dirt(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Cover small squares of the picture with dark or light specks."""
    height, width = label.pixels.shape
    edge = max(1, round(_SPECK_MODULES * label.module_px))
    cells = -(-height // edge), -(-width // edge)
    hit, light = chance.field(*cells) < part(_DIRT_COVERED * severity), chance.field(*cells) >= part(0.5)
    specks = np.kron(hit, np.ones((edge, edge), np.int64))[:height, :width]
    greys = np.kron(np.where(light, _DUST_GREY, _DIRT_GREY), np.ones((edge, edge), np.int64))[:height, :width]
    return np.where(specks > 0, greys, label.pixels).astype(np.uint8)
