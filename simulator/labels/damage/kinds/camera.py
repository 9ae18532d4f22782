"""What a camera and its light do to a picture: blur, noise, faded print, glare, shadow."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from simulator.labels.damage.chance import PortableRandom, add_grain
from simulator.labels.damage.kind import damage_kind
from simulator.labels.damage.label import CleanLabel, blank_like
from simulator.labels.damage.pixels import Pixels, convolve, distances, mix, part, scale_light, soft_edge
from simulator.labels.damage.pixels import blur as gaussian_blur

_BLUR_MODULES: Final = 1.3
"""Standard deviation of the Gaussian at severity 1."""
_MOTION_MODULES: Final = 3.5
_NOISE_DEVIATION: Final = 220.0
"""Standard deviation at severity 1, of 255 grey levels."""
_CONTRAST_LOST: Final = 0.99
_FADED_GREY: Final = 160
_GRAIN: Final = 3.0
"""Noise of the camera at severity 1, in grey levels."""
_GLARE_RADIUS: Final = 0.6
"""Of the spot at severity 1, as a share of the code's edge."""
_GLARE_SOFTNESS: Final = 0.4
"""Share of the radius over which the spot fades out."""
_LIGHT_LOST: Final = 0.99
"""Share of the light that the dark side loses at severity 1."""


@damage_kind("out of focus", unit="modules of standard deviation", measure=lambda severity: _BLUR_MODULES * severity)
def blur(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Blur the whole picture with a Gaussian."""
    del chance
    return gaussian_blur(label.pixels, _BLUR_MODULES * severity * label.module_px)


@damage_kind(
    "moved while the shutter was open", unit="modules moved", measure=lambda severity: _MOTION_MODULES * severity
)
def motion_blur(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Blur the picture along a straight way, across or down."""
    length = _MOTION_MODULES * severity * label.module_px
    reach = math.ceil(length / 2)
    # How much of each pixel the way covers, from one end to the other.
    covered = [max(0.0, min(at + 0.5, length / 2) - max(at - 0.5, -length / 2)) for at in range(-reach, reach + 1)]
    weights = [part(share / length) for share in covered]
    weights[reach] += part(1) - sum(weights)
    return convolve(label.pixels, weights, axis=chance.index(2))


@damage_kind(
    "noise of a sensor in the dark",
    unit="grey levels of standard deviation",
    measure=lambda severity: _NOISE_DEVIATION * severity,
)
def noise(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Add bell-shaped noise to each pixel."""
    return add_grain(label.pixels, _NOISE_DEVIATION * severity, chance)


@damage_kind(
    "faded: dark and light come near each other",
    unit="% of contrast lost",
    measure=lambda severity: 100 * _CONTRAST_LOST * severity,
)
def contrast(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Fade all pixels to one grey."""
    share = np.full(label.pixels.shape, part(_CONTRAST_LOST * severity), np.int64)
    faded = mix(label.pixels, blank_like(label, _FADED_GREY), share)
    return add_grain(faded, _GRAIN * severity, chance)


@damage_kind(
    "a lamp mirrored in the surface",
    unit="% of the code's edge, radius",
    measure=lambda severity: 100 * _GLARE_RADIUS * severity,
)
def glare(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Put a white spot with a soft edge on the code."""
    x = label.left + label.edge * chance.between(0.25, 0.75)
    y = label.top + label.edge * chance.between(0.25, 0.75)
    reach = _GLARE_RADIUS * severity * label.edge
    spot = soft_edge(distances(label.pixels, x, y), reach, reach * _GLARE_SOFTNESS)
    return mix(label.pixels, blank_like(label), spot)


@damage_kind(
    "one side in the shadow",
    unit="% of light lost on the dark side",
    measure=lambda severity: 100 * _LIGHT_LOST * severity,
)
def uneven_light(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Darken the picture evenly from one side to the other."""
    angle = chance.between(0, 2 * math.pi)
    height, width = label.pixels.shape
    x, y = label.centre
    across = np.arange(width) + 0.5 - x
    down = (np.arange(height) + 0.5 - y)[:, None]
    way = (across * math.cos(angle) + down * math.sin(angle)) / label.edge + 0.5
    light = np.rint((1 - _LIGHT_LOST * severity * np.clip(way, 0, 1)) * part(1)).astype(np.int64)
    return add_grain(scale_light(label.pixels, light), _GRAIN * severity, chance)
