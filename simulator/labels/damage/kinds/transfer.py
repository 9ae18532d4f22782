"""What is lost on the way from the camera to the reader: pixels, and what JPEG leaves out."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from PIL import Image

from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.kind import damage_kind
from simulator.labels.damage.label import PIXELS_PER_MODULE, CleanLabel
from simulator.labels.damage.pixels import Pixels, shrink
from simulator.labels.symbol.pictures import open_picture

_MODULES_PER_PIXEL: Final = (1 / PIXELS_PER_MODULE, 1.0)
"""At severity 0, which is what a clean label has, and at severity 1."""
_MESSENGER_PIXELS_PER_MODULE: Final = 1.7
"""What a messenger scales a picture down to."""
_JPEG_QUALITY: Final = (90, 1)
"""At severity 0 and at severity 1."""


def _modules_per_pixel(severity: float) -> float:
    least, most = _MODULES_PER_PIXEL
    return least + (most - least) * severity


@damage_kind("too few pixels for its modules", unit="modules for each pixel", measure=_modules_per_pixel)
def low_resolution(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Show the label to a sensor with larger pixels, whose grid lies anywhere."""
    shift = chance.between(0, 1), chance.between(0, 1)
    return shrink(label.pixels, max(1.0, _modules_per_pixel(severity) * label.module_px), shift)


def _quality_lost(severity: float) -> float:
    best, worst = _JPEG_QUALITY
    return 100 - best + (best - worst) * severity


@damage_kind("sent through a messenger, compressed", unit="quality points lost of 100", measure=_quality_lost)
def jpeg(label: CleanLabel, severity: float, chance: PortableRandom) -> Pixels:
    """Scale the picture down and compress it as JPEG."""
    del chance
    small = shrink(label.pixels, max(1.0, label.module_px / _MESSENGER_PIXELS_PER_MODULE))
    file = io.BytesIO()
    Image.fromarray(small).save(file, "JPEG", quality=round(100 - _quality_lost(severity)))
    with open_picture(file.getvalue()) as opened:
        return np.asarray(opened.convert("L"))
