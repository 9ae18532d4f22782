"""What the kinds do to pixels, in whole numbers, so that every machine gets the same picture.

Floating point decides only coordinates and weights, and those are rounded to 1/256 pixel and 1/65536 before they touch
a pixel: a last bit that differs between two processors or builds of numpy is rounded away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""A grey picture, shape ``(height, width)``, 0 black to 255 white."""
Whole = NDArray[np.int64]
Coordinates = NDArray[np.float64]

WHITE: Final = 255
_ONE: Final = 65536
_BITS: Final = 8
_STEP: Final = 1 << _BITS


def to_pixels(values: NDArray[np.signedinteger[Any]]) -> Pixels:
    """Whole numbers as pixels: what is below 0 is black, what is above 255 white."""
    pixels: Pixels = np.clip(values, 0, WHITE).astype(np.uint8)
    return pixels


def canvas(height: int, width: int, value: int = WHITE) -> Pixels:
    """A picture of one grey."""
    return np.full((height, width), value, np.uint8)


def pad(pixels: Pixels, margin: int, value: int = WHITE) -> Pixels:
    """The picture with ``margin`` pixels of one grey on each side."""
    return np.pad(pixels, margin, constant_values=value)


def mix(first: Pixels, second: Pixels, share: Whole) -> Pixels:
    """``first`` with ``share`` parts of 65536 of ``second``, pixel by pixel."""
    return to_pixels((first.astype(np.int64) * (_ONE - share) + second.astype(np.int64) * share + _ONE // 2) // _ONE)


def scale_light(pixels: Pixels, light: Whole) -> Pixels:
    """Each pixel times ``light`` parts of 65536."""
    return to_pixels((pixels.astype(np.int64) * light + _ONE // 2) // _ONE)


def part(share: float) -> int:
    """A share from 0 to 1 in parts of 65536."""
    return round(share * _ONE)


def bell_weights(deviation: float) -> list[int]:
    """The weights of a Gaussian of this standard deviation in pixels, above 0, which add up to 65536."""
    reach = max(1, math.ceil(3 * deviation))
    heights = [math.exp(-(at**2) / (2 * deviation**2)) for at in range(-reach, reach + 1)]
    weights = [round(_ONE * height / sum(heights)) for height in heights]
    weights[reach] += _ONE - sum(weights)
    return weights


def convolve(pixels: Pixels, weights: Sequence[int], axis: int) -> Pixels:
    """Each pixel as the weighted mean of its neighbours along an axis; the edge's pixels go on beyond it.

    Args:
        pixels: the picture.
        weights: an odd number of them, adding up to 65536.
        axis: 0 down, 1 across.
    """
    reach = len(weights) // 2
    margin = [(0, 0), (0, 0)]
    margin[axis] = (reach, reach)
    wide = np.pad(pixels, margin, mode="edge").astype(np.int32)
    size = pixels.shape[axis]
    total = np.full(pixels.shape, _ONE // 2, np.int32)
    for at, weight in enumerate(weights):
        total += weight * (wide[at : at + size] if axis == 0 else wide[:, at : at + size])
    return to_pixels(total // _ONE)


def blur(pixels: Pixels, deviation: float) -> Pixels:
    """A Gaussian blur of this standard deviation in pixels."""
    weights = bell_weights(deviation)
    return convolve(convolve(pixels, weights, 0), weights, 1)


def warp(pixels: Pixels, xs: Coordinates, ys: Coordinates) -> Pixels:
    """A picture whose pixel (i, j) is the source's at ``xs[i, j]``, ``ys[i, j]``; white lies around the source."""
    height, width = pixels.shape
    x = np.rint(np.clip(xs, -2, width + 1) * _STEP).astype(np.int32)
    y = np.rint(np.clip(ys, -2, height + 1) * _STEP).astype(np.int32)
    wide = np.pad(pixels, 3, constant_values=WHITE).astype(np.int32)
    left, top = (x >> _BITS) + 3, (y >> _BITS) + 3
    across, down = x & (_STEP - 1), y & (_STEP - 1)
    upper = wide[top, left] * (_STEP - across) + wide[top, left + 1] * across
    lower = wide[top + 1, left] * (_STEP - across) + wide[top + 1, left + 1] * across
    return to_pixels((upper * (_STEP - down) + lower * down + _ONE // 2) >> (2 * _BITS))


def shrink(pixels: Pixels, pixel: float, shift: tuple[float, float] = (0.0, 0.0)) -> Pixels:
    """The picture as a sensor with larger pixels sees it: each the mean of what it covers.

    Args:
        pixels: the picture.
        pixel: edge of a new pixel in old ones, at least 1.
        shift: where the first new pixel begins, across and down, in new pixels from 0 to 1; white lies before it.
    """
    for axis in (0, 1):
        pixels = _shrink_along(pixels, pixel, shift[1 - axis], axis)
    return pixels


def _shrink_along(pixels: Pixels, pixel: float, shift: float, axis: int) -> Pixels:
    lines = np.moveaxis(pixels, axis, 0).astype(np.int64)
    count = max(1, math.ceil(len(lines) / pixel + shift))
    edges = [round((at - shift) * pixel * _STEP) for at in range(count + 1)]
    # White before the first line and after the last one, as long as the new pixels reach.
    sums = np.concatenate([np.zeros((1, lines.shape[1]), np.int64), np.cumsum(lines, axis=0)])
    reached = np.stack([_sum_to(sums, edge) for edge in edges])
    sizes = np.diff(np.asarray(edges, np.int64))[:, None]
    means = (np.diff(reached, axis=0) + sizes // 2) // sizes
    return np.ascontiguousarray(np.moveaxis(to_pixels(means), 0, axis))


def _sum_to(sums: Whole, edge: int) -> Whole:
    """The sum of all lines before ``edge`` (in 1/256 line), white ones beyond the picture counted."""
    size = (len(sums) - 1) * _STEP
    inside = min(max(edge, 0), size)
    line, rest = divmod(inside, _STEP)
    total = sums[line] * _STEP
    if rest:
        total = total + (sums[line + 1] - sums[line]) * rest
    return np.asarray(total + (edge - inside) * WHITE)


def spread_dark(pixels: Pixels, reach: float) -> Pixels:
    """Dark parts grown by ``reach`` pixels on every side, a square's way; parts of a pixel are parts of its grey."""
    whole = int(reach)
    grown = _darkest(pixels, whole)
    share = part(reach - whole)
    return mix(grown, _darkest(pixels, whole + 1), np.full(pixels.shape, share, np.int64)) if share else grown


def _darkest(pixels: Pixels, reach: int) -> Pixels:
    for axis in (0, 1):
        margin = [(0, 0), (0, 0)]
        margin[axis] = (reach, reach)
        wide = np.pad(pixels, margin, constant_values=WHITE)
        size = pixels.shape[axis]
        views = [wide[at : at + size] if axis == 0 else wide[:, at : at + size] for at in range(2 * reach + 1)]
        pixels = np.minimum.reduce(views)
    return pixels


def distances(pixels: Pixels, x: float, y: float) -> Coordinates:
    """How far each pixel's centre is from a point, in pixels."""
    height, width = pixels.shape
    across = np.arange(width) + 0.5 - x
    down = np.arange(height) + 0.5 - y
    return np.sqrt(across[None, :] ** 2 + down[:, None] ** 2)


def soft_edge(distance: Coordinates, reach: float, softness: float) -> Whole:
    """Parts of 65536: all of it up to ``reach - softness`` pixels, none from ``reach`` on, a ramp between."""
    ramp = np.clip((reach - distance) / max(softness, 1e-9), 0.0, 1.0)
    return np.rint(ramp * _ONE).astype(np.int64)
