"""A photograph from outside as grey pixels: bounded by what its head says, before anything of it is decoded."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from simulator.labels.errors import LabelError
from simulator.labels.verify.pages import Pixels

PIXELS_MAX: Final = 64_000_000
"""Of a picture, by what its head says: nothing of a larger one is decoded."""
_LOOKED_AT: Final = 16_000_000
"""A picture with more pixels than this is looked at in half its size, or less."""
_HEIF: Final = (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftyphevc", b"ftypavif")


class PictureError(LabelError):
    """A picture that cannot be looked at.

    Attributes:
        word: a stable snake_case word.
    """

    def __init__(self, word: str, text: str) -> None:
        self.word = word
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Photograph:
    """A picture as the decoders see it.

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
        data: the picture's bytes, in a format that Pillow reads.

    Raises:
        PictureError: it is no picture, or too large.
    """
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(io.BytesIO(data)) as opened,
        ):
            return _grey(opened)
    except Image.DecompressionBombError:  # Pillow's own bound
        raise _too_many_pixels("It") from None
    except PictureError:
        raise
    except Exception:  # noqa: BLE001 - Pillow's readers of old formats meet damaged files with errors of any kind
        raise _not_a_picture(data) from None


def _grey(opened: Image.Image) -> Photograph:
    width, height = opened.size
    if width * height > PIXELS_MAX:
        raise _too_many_pixels(f"{width:,} x {height:,} pixels")
    kind = opened.format or "picture"
    if width * height > _LOOKED_AT:
        opened.draft("L", (width // 2, height // 2))  # of a JPEG a smaller one is decoded
    upright = ImageOps.exif_transpose(opened)
    if upright.has_transparency_data:
        layer = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    grey = _eight_bits(upright) if upright.mode.startswith(("I", "F")) else upright.convert("L")
    if (grey.width > grey.height) != (width > height):  # EXIF turned it
        width, height = height, width
    while grey.width * grey.height > _LOOKED_AT:
        grey = grey.reduce(2)
    return Photograph(np.asarray(grey), width, height, kind, width / grey.width)


def _eight_bits(deep: Image.Image) -> Image.Image:
    """A picture of 16 bits or more per pixel, which Pillow would clip instead of scale."""
    values = np.asarray(deep).astype(np.float32)
    peak = float(values.max()) or 1.0
    return Image.fromarray(np.clip(values * (255 / peak), 0, 255).astype(np.uint8))


def _too_many_pixels(what: str) -> PictureError:
    limit = f"{PIXELS_MAX // 1_000_000} million"
    return PictureError("too_many_pixels", f"{what} has more than {limit} pixels: scale the picture down, or cut it.")


def _not_a_picture(data: bytes) -> PictureError:
    if data[4:12] in _HEIF:
        text = "This is a HEIC or AVIF photograph, which cannot be read here: save or share it as JPEG."
    elif data[:5] == b"%PDF-":
        text = "This is a PDF document: take a picture of its page, or run 'fleet-simulator labels verify' with it."
    elif not data:
        text = "The body is empty: send the picture's bytes, in curl with --data-binary @FILE."
    else:
        text = "This is not a whole picture that can be read: send it as JPEG, PNG or WebP."
    return PictureError("not_a_picture", text)
