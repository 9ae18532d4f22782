"""How a label lies before the camera: from the side, turned, bent round a cylinder, folded."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.kind import damage_kind
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, part, scale_light, soft_edge, warp

_TILT_DEGREES: Final = 82.0
"""Between the camera and the upright at severity 1."""
_CAMERA_DISTANCE: Final = 4.0
"""In edges of the picture."""
_TURN_DEGREES: Final = 45.0
"""At severity 1, which is as far from the grid of pixels as it gets."""
_CYLINDER_DEGREES: Final = 179.0
_FOLDED_MODULES: Final = 4.0
_FOLD_SHADE: Final = 0.5
"""Share of the light that the fold takes."""


@damage_kind("photographed from the side", unit="degrees of tilt", measure=lambda severity: _TILT_DEGREES * severity)
def perspective(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Tilt the label away from the camera in any direction."""
    angle = chance.between(0, 2 * math.pi)
    height, width = label.pixels.shape
    along = np.arange(width) + 0.5 - width / 2
    down = (np.arange(height) + 0.5 - height / 2)[:, None]
    # In a frame whose x axis is the direction in which the label leans away.
    seen_x = along * math.cos(angle) + down * math.sin(angle)
    seen_y = down * math.cos(angle) - along * math.sin(angle)
    away = _CAMERA_DISTANCE * max(height, width)
    tilt = math.radians(_TILT_DEGREES * severity)
    sine, cosine = math.sin(tilt), math.cos(tilt)
    depth = away * cosine - seen_x * sine
    x = np.where(depth > 1, seen_x * away / np.maximum(depth, 1), 2 * away)
    y = seen_y * (away + x * sine) / away
    source_x = x * math.cos(angle) - y * math.sin(angle) + width / 2 - 0.5
    source_y = x * math.sin(angle) + y * math.cos(angle) + height / 2 - 0.5
    return warp(label.pixels, source_x, source_y)


@damage_kind("turned in the picture", unit="degrees", measure=lambda severity: _TURN_DEGREES * severity)
def rotation(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Turn the label to the left or to the right; the picture grows so that all of it is shown."""
    angle = math.radians(_TURN_DEGREES * severity) * (1, -1)[chance.index(2)]
    height, width = label.pixels.shape
    edge = math.ceil(math.hypot(height, width))
    along = np.arange(edge) + 0.5 - edge / 2
    down = along[:, None]
    source_x = along * math.cos(angle) + down * math.sin(angle) + width / 2 - 0.5
    source_y = down * math.cos(angle) - along * math.sin(angle) + height / 2 - 0.5
    return warp(label.pixels, source_x, source_y)


@damage_kind(
    "stuck on a cylinder",
    unit="degrees of the cylinder that the code covers",
    measure=lambda severity: _CYLINDER_DEGREES * severity,
)
def curvature(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Bend the label round a cylinder such as a pipe or a bottle, upright or lying."""
    upright = chance.index(2)
    pixels = label.pixels if upright else label.pixels.T
    middle = label.centre[0] if upright else label.centre[1]
    radius = label.edge / math.radians(_CYLINDER_DEGREES * severity)
    height, width = pixels.shape
    seen = (np.arange(width) + 0.5 - middle) / radius
    around = np.where(np.abs(seen) < 1, np.arcsin(np.clip(seen, -1, 1)) * radius, 10.0 * width)
    xs = np.broadcast_to(around + middle - 0.5, (height, width))
    ys = np.broadcast_to(np.arange(height, dtype=float)[:, None], (height, width))
    bent = warp(pixels, xs, ys)
    return bent if upright else np.ascontiguousarray(bent.T)


@damage_kind(
    "folded: a strip is gone in the fold",
    unit="modules gone in the fold",
    measure=lambda severity: _FOLDED_MODULES * severity,
)
def crease(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Take a strip out of the label, across or down, and darken the fold."""
    upright = chance.index(2)
    pixels = label.pixels if upright else label.pixels.T
    at = (label.left if upright else label.top) + label.edge * chance.between(0.3, 0.7)
    lost = _FOLDED_MODULES * severity * label.module_px
    height, width = pixels.shape
    columns = np.arange(width, dtype=float)
    columns += np.where(columns + 0.5 < at, 0.0, lost)
    ys = np.broadcast_to(np.arange(height, dtype=float)[:, None], (height, width))
    folded = warp(pixels, np.broadcast_to(columns, (height, width)), ys)
    fold = soft_edge(np.abs(np.arange(width) + 0.5 - at), 0.5 * label.module_px, 0.5 * label.module_px)
    shaded = scale_light(folded, part(1) - fold[None, :] * part(_FOLD_SHADE * severity) // part(1))
    return shaded if upright else np.ascontiguousarray(shaded.T)
