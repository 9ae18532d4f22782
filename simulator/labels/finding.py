"""All QR codes of a page, with their places: one quick look, and a few patient ones where something is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image, ImageFilter

from simulator.labels.pictures import Pixels
from simulator.labels.symbol import scan

Corner = tuple[float, float]
Corners = tuple[Corner, Corner, Corner, Corner]
"""Around a code in its page's pixels, from its upper left."""

_TILE: Final = 1200
_OVERLAP: Final = 500
_SMALL_PIXELS: Final = 4_000_000
_EDGE_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class FoundCode:
    """A code that was read: its bytes, the text that zxing-cpp takes them for, and where it is."""

    data: bytes
    text: str
    corners: Corners


class CodeSearch:
    """The search for the codes of one page.

    Attributes:
        found: the codes that were read so far.
    """

    def __init__(self, pixels: Pixels, found: Sequence[FoundCode] = ()) -> None:
        self._page = pixels
        self.found = list(found)
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

    def search(self, is_enough: Callable[[], bool] | None = None) -> None:
        """The quick look, then patient ones until ``is_enough()``: until all that was seen was read, if not given."""
        self.look()
        is_enough = is_enough or self._all_read
        for seen, scale, left, top in _looks(self._page):
            if is_enough():
                return
            self._look_at(seen, scale, left, top)

    def look(self) -> None:
        """The quick look: the whole page as it is."""
        self._look_at(self._page, 1, 0, 0)

    def without_page(self) -> CodeSearch:
        """What was found, without the page's pixels."""
        result = CodeSearch(np.empty((0, 0), np.uint8), self.found)
        result._suspects = self._suspects
        return result

    def in_reading_order(self) -> list[FoundCode]:
        """From the upper left of the page on, row by row."""
        edge = max(1.0, min((_edge(code.corners) for code in self.found), default=1.0))
        return sorted(self.found, key=lambda code: (round(code.corners[0][1] / edge), code.corners[0][0]))

    def _all_read(self) -> bool:
        return bool(self.found) and not self.unread

    def _look_at(self, seen: Pixels, scale: float, left: int, top: int) -> None:
        for code in scan(seen, with_unread=True):
            place = code.position
            points = (place.top_left, place.top_right, place.bottom_right, place.bottom_left)
            a, b, c, d = ((point.x / scale + left, point.y / scale + top) for point in points)
            corners = (a, b, c, d)
            if not code.valid:
                self._suspects.append(corners)
            elif not any(_overlap(corners, other.corners) for other in self.found):
                self.found.append(FoundCode(bytes(code.bytes), code.text, corners))


def _looks(page: Pixels) -> Iterator[tuple[Pixels, float, int, int]]:
    """The patient looks, the likeliest to help first: what is seen, its scale, and where it begins on the page."""
    height, width = page.shape
    picture = Image.fromarray(page)
    yield np.asarray(picture.resize((max(1, width // 2), max(1, height // 2)), Image.Resampling.BOX)), 0.5, 0, 0
    # The mean of each pixel's neighbours takes away noise that is finer than a module.
    yield np.asarray(picture.filter(ImageFilter.BoxBlur(1))), 1, 0, 0
    if max(height, width) > _TILE:
        for top in _starts(height):
            for left in _starts(width):
                yield page[top : top + _TILE, left : left + _TILE], 1, left, top
    if height * width <= _SMALL_PIXELS:
        yield np.asarray(picture.resize((width * 2, height * 2), Image.Resampling.BICUBIC)), 2, 0, 0
    yield np.asarray(picture.filter(ImageFilter.BoxBlur(2))), 1, 0, 0
    yield np.asarray(picture.filter(ImageFilter.MedianFilter(5))), 1, 0, 0


def _starts(size: int) -> list[int]:
    """Where tiles begin so that each part of ``size`` lies in one, with the overlap."""
    count = max(1, math.ceil((size - _OVERLAP) / (_TILE - _OVERLAP)))
    return [round(number * max(0, size - _TILE) / max(1, count - 1)) for number in range(count)]


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
    return _within(first, second) or _within(second, first)


def _within(inner: Corners, outer: Corners) -> bool:
    x, y = sum(x for x, _ in inner) / 4, sum(y for _, y in inner) / 4
    xs, ys = [x for x, _ in outer], [y for _, y in outer]
    return min(xs) <= x <= max(xs) and min(ys) <= y <= max(ys)
