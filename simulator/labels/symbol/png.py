"""A symbol as a 1-bit PNG file at its true size."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix


def draw_png(matrix: Matrix, *, dots_per_module: int, dpi: int) -> bytes:
    """Draw a symbol with its quiet zone, black on white.

    Args:
        matrix: the modules.
        dots_per_module: edge of one module in pixels, at least 1.
        dpi: dots per inch, noted in the file so that it prints at its true size.

    Returns:
        The file: ``(modules + 8) * dots_per_module`` pixels square.
    """
    light = np.frombuffer(b"".join(matrix.rows), np.uint8).reshape(matrix.modules, matrix.modules) == 0
    modules = np.pad(light, QUIET_MODULES, constant_values=True)
    file = io.BytesIO()
    pixels = modules.repeat(dots_per_module, axis=0).repeat(dots_per_module, axis=1)
    Image.fromarray(pixels).save(file, "PNG", dpi=(dpi, dpi))
    return file.getvalue()
