"""All QR codes of a page, with their places: one quick look, and many patient ones where something is missing.

zxing-cpp gives the place of a code, and of codes that it saw and could not read. What was found is painted over before
the next look, so that a look finds only what is new, a second copy of a label included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import zxingcpp
from PIL import Image, ImageDraw, ImageFilter

from simulator.labels.symbol.pictures import Pixels

Corner = tuple[float, float]
Corners = tuple[Corner, Corner, Corner, Corner]
"""Around a code in its page's pixels, from its upper left."""

_QR: Final = zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.QRCode])
_TILE: Final = 1200
_OVERLAP: Final = 500
_LARGE: Final = 1600
_SMALL_PIXELS: Final = 4_000_000
_PAINT: Final = 1.04
_TURN_DEGREES: Final = 30
_EDGE_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class FoundCode:
    """A code that was read.

    Attributes:
        data: what it says.
        corners: where.
        look: how it was looked at.
    """

    data: bytes
    corners: Corners
    look: str


@dataclass(frozen=True, slots=True)
class _PageVersion:
    """The page seen one way.

    Attributes:
        name: for reports.
        pixels: what is seen.
        back: turns a place in it into the place on the page.
    """

    name: str
    pixels: Pixels
    back: Callable[[Corner], Corner]


class CodeSearch:
    """The search for the codes of one page.

    Args:
        pixels: the page.
        found: what an earlier search of this page found.
    """

    def __init__(self, pixels: Pixels, found: Sequence[FoundCode] = ()) -> None:
        self._page = pixels
        self.found: list[FoundCode] = list(found)
        self._suspects: list[Corners] = []

    @property
    def unread(self) -> tuple[Corners, ...]:
        """Where a code was seen and not read: about as large as those that were read, and clear of them."""
        edges = sorted(_edge(code.corners) for code in self.found)
        usual = edges[len(edges) // 2] if edges else None
        kept: list[Corners] = []
        for corners in self._suspects:
            taken = [*(code.corners for code in self.found), *kept]
            if _plausible(corners, usual) and not any(_overlap(corners, other) for other in taken):
                kept.append(corners)
        return tuple(kept)

    def look(self) -> None:
        """The quick look: the whole page as it is."""
        self._look_at(_PageVersion("page", self._page, lambda place: place))

    def search_thoroughly(self, enough: Callable[[], bool]) -> None:
        """Tiles, scales, filters, turned and inverted, until ``enough()``."""
        for make in _looks(self._page.shape):
            if enough():
                return
            self._look_at(make(self._painted()))

    def _look_at(self, look: _PageVersion) -> None:
        for code in zxingcpp.read_barcodes(np.ascontiguousarray(look.pixels), formats=_QR, return_errors=True):
            place = code.position
            inside = (place.top_left, place.top_right, place.bottom_right, place.bottom_left)
            a, b, c, d = (look.back((float(point.x), float(point.y))) for point in inside)
            if code.valid:
                self._add(FoundCode(bytes(code.bytes), (a, b, c, d), look.name))
            else:
                self._suspects.append((a, b, c, d))

    def _add(self, code: FoundCode) -> None:
        if not any(_overlap(code.corners, other.corners) for other in self.found):
            self.found.append(code)

    def _painted(self) -> Pixels:
        return _paint(self._page, [code.corners for code in self.found])


def _looks(shape: tuple[int, ...]) -> Iterator[Callable[[Pixels], _PageVersion]]:
    """The patient looks at a page of this size, the likeliest to help first."""
    height, width = shape
    yield lambda page: _scaled(page, 0.5, "half size")
    yield lambda page: _PageVersion("smoothed", _filtered(page, 1), lambda place: place)
    if max(height, width) > _LARGE:
        for top in _starts(height):
            for left in _starts(width):
                yield partial(_tile, left=left, top=top)
        yield lambda page: _scaled(page, 1 / 3, "a third of the size")
    if height * width <= _SMALL_PIXELS:
        yield lambda page: _scaled(page, 2.0, "double size")
    yield lambda page: _PageVersion("smoothed more", _filtered(page, 2), lambda place: place)
    yield lambda page: _PageVersion("inverted", 255 - page, lambda place: place)
    yield _turned


def _starts(size: int) -> list[int]:
    """Where tiles begin so that each part of ``size`` lies in one, with the overlap."""
    count = max(1, math.ceil((size - _OVERLAP) / (_TILE - _OVERLAP)))
    return [round(number * max(0, size - _TILE) / max(1, count - 1)) for number in range(count)]


def _tile(page: Pixels, *, left: int, top: int) -> _PageVersion:
    cut = page[top : top + _TILE, left : left + _TILE]
    return _PageVersion("tile", cut, lambda place: (place[0] + left, place[1] + top))


def _scaled(page: Pixels, factor: float, name: str) -> _PageVersion:
    size = max(1, round(page.shape[1] * factor)), max(1, round(page.shape[0] * factor))
    method = Image.Resampling.BOX if factor < 1 else Image.Resampling.BICUBIC
    seen = np.asarray(Image.fromarray(page).resize(size, method))
    return _PageVersion(name, seen, lambda place: (place[0] / factor, place[1] / factor))


def _filtered(page: Pixels, reach: int) -> Pixels:
    """Each pixel the mean of those around it: takes away noise that is finer than a module."""
    return np.asarray(Image.fromarray(page).filter(ImageFilter.BoxBlur(reach)))


def _turned(page: Pixels) -> _PageVersion:
    """The page turned by 30 degrees: some decoders are weak at certain angles."""
    picture = Image.fromarray(page)
    turned = picture.rotate(_TURN_DEGREES, Image.Resampling.BILINEAR, expand=True, fillcolor=255)
    cosine, sine = math.cos(math.radians(_TURN_DEGREES)), math.sin(math.radians(_TURN_DEGREES))

    def back(place: Corner) -> Corner:
        x, y = place[0] - turned.width / 2, place[1] - turned.height / 2
        return x * cosine - y * sine + picture.width / 2, x * sine + y * cosine + picture.height / 2

    return _PageVersion("turned", np.asarray(turned), back)


def _paint(pixels: Pixels, codes: Sequence[Corners]) -> Pixels:
    """The picture with each code painted white, a little beyond its corners."""
    if not codes:
        return pixels
    picture = Image.fromarray(pixels)
    draw = ImageDraw.Draw(picture)
    for corners in codes:
        x, y = _centre(corners)
        draw.polygon([(x + (cx - x) * _PAINT, y + (cy - y) * _PAINT) for cx, cy in corners], fill=255)
    return np.asarray(picture)


def _centre(corners: Corners) -> Corner:
    return sum(x for x, _ in corners) / 4, sum(y for _, y in corners) / 4


def _sides(corners: Corners) -> list[float]:
    return [math.dist(corners[number], corners[(number + 1) % 4]) for number in range(4)]


def _edge(corners: Corners) -> float:
    return sum(_sides(corners)) / 4


def _plausible(corners: Corners, usual: float | None) -> bool:
    """Whether four corners look like a code: sides alike, and about as long as those of the codes that were read."""
    sides = _sides(corners)
    if min(sides) < max(_EDGE_MIN, 0.5 * max(sides)):
        return False
    return usual is None or 0.6 * usual < _edge(corners) < 1.6 * usual


def _overlap(first: Corners, second: Corners) -> bool:
    """Whether the middle of one lies in the box around the other: no two codes on paper do."""
    return _within(_centre(first), second) or _within(_centre(second), first)


def _within(place: Corner, corners: Corners) -> bool:
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return min(xs) <= place[0] <= max(xs) and min(ys) <= place[1] <= max(ys)
