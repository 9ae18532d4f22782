"""A photograph from outside as the grey pixels that are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image

from simulator.labels.pictures import Pixels, gray_pixels, open_picture

_LOOKED_AT: Final = 16_000_000
"""A picture with more pixels than this is looked at in half its size, or less."""


@dataclass(frozen=True, slots=True)
class Photograph:
    """A picture as the decoder sees it.

    Attributes:
        pixels: grey, upright.
        width: of the picture as it was sent, upright.
        height: the same.
        kind: its format, such as ``JPEG``.
        shrunk: pixels of the picture for one that is looked at.
    """

    pixels: Pixels
    width: int
    height: int
    kind: str
    shrunk: float


def open_photograph(data: bytes) -> Photograph:
    """The pixels of a picture.

    Args:
        data: the picture's bytes.

    Raises:
        PictureError: it is no picture, or too large.
    """
    with open_picture(data) as opened:
        width, height = opened.size
        kind = opened.format or "picture"
        if width * height > _LOOKED_AT:
            opened.draft("L", (width // 2, height // 2))  # of a JPEG a smaller one is decoded
        gray = Image.fromarray(gray_pixels(opened))
    if (gray.width > gray.height) != (width > height):  # EXIF turned it
        width, height = height, width
    while gray.width * gray.height > _LOOKED_AT:
        gray = gray.reduce(2)
    return Photograph(np.asarray(gray), width, height, kind, width / gray.width)
