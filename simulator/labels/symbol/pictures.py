"""Pictures from outside as grey pixels, within bounds."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Final

from PIL import Image, UnidentifiedImageError

from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import GrayImage

_PIXELS_MAX: Final = 100_000_000


def load_picture(source: bytes | Path) -> GrayImage:
    """The grey pixels of a picture; what is transparent counts as white.

    Args:
        source: a picture's bytes, or the file that holds them: any format that Pillow reads.

    Raises:
        LabelError: not a picture, cut short, unreadable, or beyond 100 million pixels.
    """
    name = "the picture" if isinstance(source, bytes) else str(source)
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as opened,
        ):
            if opened.width * opened.height > _PIXELS_MAX:
                raise LabelError(f"{name}: too many pixels; scale it down")
            return _gray(opened)
    except Image.DecompressionBombError:  # Pillow's own bound, by default 179 million pixels
        raise LabelError(f"{name}: too many pixels; scale it down") from None
    except (UnidentifiedImageError, SyntaxError, ValueError):
        raise LabelError(f"{name}: not a picture that can be read; give a PNG file") from None
    except OSError as problem:
        raise LabelError(f"{name}: {problem.strerror or problem}; give a whole, readable PNG file") from None


def _gray(picture: Image.Image) -> GrayImage:
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    gray = picture.convert("L")
    return GrayImage(gray.width, gray.height, gray.tobytes())
