"""Pictures from outside as grey pixels: a few formats, and no more pixels than a limit that their head has to keep."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.ExifTags import Base

from simulator.labels.errors import LabelError

FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""All that is ever opened. Pillow would hand PostScript to Ghostscript, which runs it as a program."""
PIXELS_MAX: Final = 50_000_000
"""Of one picture or page, by what its head says: A4 at 600 dots per inch has 35 million."""
PAGES_MAX: Final = 500
"""Of one file."""
_HEIF: Final = (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftyphevc", b"ftypavif")
_BYTE_MAX: Final = 255
_SIXTEEN_BITS: Final = 65535

Pixels = NDArray[np.uint8]
"""Shape ``(height, width)``, 0 black to 255 white."""


class PictureError(LabelError):
    """A picture that cannot be looked at.

    Attributes:
        word: a stable snake_case word: ``not_a_picture`` or ``too_many_pixels``.
    """

    def __init__(self, word: str, text: str) -> None:
        self.word = word
        super().__init__(text)


@contextlib.contextmanager
def open_picture(source: bytes | Path) -> Iterator[Image.Image]:
    """A picture whose head was read; nothing of it is decoded before the block does so.

    Nothing else in this program opens pictures.

    Args:
        source: a picture's bytes, or the file that holds them, in one of :data:`FORMATS`.

    Raises:
        PictureError: no such picture, too many pixels, or the block met a damaged one.
    """
    name = "the picture" if isinstance(source, bytes) else str(source)
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as opened,
        ):
            require_pixels(opened, name)
            yield opened
    except LabelError:
        raise
    except Image.DecompressionBombError:  # Pillow's own limit, which it looks at before this one
        raise _too_many_pixels(name) from None
    except Exception as problem:  # noqa: BLE001 - Pillow's readers meet damaged files with errors of any kind
        raise _not_a_picture(source, name, problem) from None


def require_pixels(picture: Image.Image, name: str) -> None:
    """Refuse a picture, or a page of one, that has more than :data:`PIXELS_MAX`.

    Raises:
        PictureError: it has.
    """
    if picture.width * picture.height > PIXELS_MAX:
        raise _too_many_pixels(name)


def load_picture(source: bytes | Path) -> Pixels:
    """The grey pixels of a picture.

    Raises:
        PictureError: see :func:`open_picture`.
    """
    with open_picture(source) as opened:
        return gray_pixels(opened)


def gray_pixels(picture: Image.Image) -> Pixels:
    """The pixels of an opened picture, upright as its EXIF data says; what is transparent counts as white."""
    if picture.getexif().get(Base.Orientation, 1) != 1:
        picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith(("I", "F")):  # 16 bits or more per pixel, which Pillow would clip instead of scale
        deep = np.asarray(picture, np.float32).copy()
        np.nan_to_num(deep, copy=False)
        deep *= _BYTE_MAX / (_SIXTEEN_BITS if deep.max(initial=0) > _BYTE_MAX else _BYTE_MAX)
        np.clip(np.rint(deep, out=deep), 0, _BYTE_MAX, out=deep)
        return deep.astype(np.uint8)
    if not picture.has_transparency_data:
        return np.asarray(picture.convert("L"))
    layer = picture if picture.mode == "RGBA" else picture.convert("RGBA")
    white = Image.new("L", layer.size, "white")
    white.paste(layer.convert("L"), mask=layer.getchannel("A"))
    return np.asarray(white)


def _too_many_pixels(name: str) -> PictureError:
    limit = f"{PIXELS_MAX // 1_000_000} million"
    return PictureError("too_many_pixels", f"{name}: more than {limit} pixels; scale the picture down, or cut it")


def _not_a_picture(source: bytes | Path, name: str, problem: Exception) -> PictureError:
    if isinstance(problem, OSError) and problem.strerror:
        return PictureError("not_a_picture", f"{name}: {problem.strerror}; give a picture that you may read")
    head = source[:12] if isinstance(source, bytes) else _head(source)
    if head[4:12] in _HEIF:
        text = "a HEIC or AVIF photograph, which cannot be read here; save or share it as JPEG"
    elif head.startswith(b"%PDF-"):
        text = "a PDF document; take a picture of its page, or run 'fleet-simulator labels verify' with the .pdf file"
    elif not head:
        text = "empty; send the picture's bytes (curl: --data-binary @FILE)"
    else:
        text = "not a whole picture that can be read; give a JPEG, PNG, WebP, GIF, BMP or TIFF picture"
    return PictureError("not_a_picture", f"{name}: {text}")


def _head(path: Path) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(12)
    return b""
