"""A label as damage finds it: its pixels, and where in them the code lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import zxingcpp

from simulator.labels.damage.pixels import WHITE, Pixels, pad, shrink
from simulator.labels.errors import LabelError
from simulator.labels.reading import read_label_files
from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix
from simulator.labels.symbol.pictures import load_picture

PIXELS_PER_MODULE: Final = 6
"""Finer and coarser labels are brought near this, so that severities mean the same on all of them."""
_DARK: Final = 128
_FINE: Final = 2 * PIXELS_PER_MODULE


@dataclass(frozen=True, slots=True)
class CleanLabel:
    """An undamaged label, upright.

    Attributes:
        name: what its files are called after.
        text: what the code says.
        pixels: the picture, at least four light modules around the code.
        left: first column of the code, quiet zone not counted.
        top: first row of the code.
        edge: edge of the code in pixels, quiet zone not counted.
        modules: edge of the code in modules.
    """

    name: str
    text: str
    pixels: Pixels
    left: int
    top: int
    edge: int
    modules: int

    @property
    def module_px(self) -> float:
        """Edge of a module in pixels."""
        return self.edge / self.modules

    @property
    def centre(self) -> tuple[float, float]:
        """The middle of the code, across and down."""
        return self.left + self.edge / 2, self.top + self.edge / 2


def draw_label(name: str, text: str, matrix: Matrix, *, module_px: int = PIXELS_PER_MODULE) -> CleanLabel:
    """A label out of its modules, with a quiet zone of four."""
    rows = np.frombuffer(b"".join(matrix.rows), np.uint8).reshape(matrix.modules, matrix.modules)
    code = np.kron(WHITE * (1 - rows), np.ones((module_px, module_px), np.uint8)).astype(np.uint8)
    quiet = QUIET_MODULES * module_px
    return CleanLabel(name, text, pad(code, quiet), quiet, quiet, len(code), matrix.modules)


def load_labels(sources: Sequence[Path | str]) -> dict[Path, CleanLabel]:
    """The labels that pictures show, by the picture: PNG files or folders of them.

    Raises:
        LabelError: a path is missing, a picture does not read, or it is not a clean, upright label.
    """
    labels = {}
    for read in read_label_files(sources):
        if not read.text:
            raise LabelError(f"{read.problem}; damage begins with labels that read: give those of 'labels make'")
        labels[read.path] = find_code(load_picture(read.path), name=read.path.stem, text=read.text)
    names = [label.name for label in labels.values()]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LabelError(f"two pictures are called {twice}: their damaged ones would overwrite each other; rename one")
    return labels


def find_code(pixels: Pixels, *, name: str, text: str) -> CleanLabel:
    """Where the code lies in the picture of a clean label.

    Args:
        pixels: one upright code, dark on light, and nothing else.
        name: what its files are called after.
        text: what the code says.

    Raises:
        LabelError: there is more in the picture than an upright code.
    """
    dark = pixels < _DARK
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    modules = _modules(pixels)
    wrong = LabelError(f"{name}: not an upright label and nothing else; give the PNG files of 'labels make'")
    if not len(rows) or modules is None:
        raise wrong
    left, top = int(columns[0]), int(rows[0])
    width, height = int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top
    if abs(width - height) > 0.02 * width or width < modules:
        raise wrong
    return _normal(CleanLabel(name, text, pixels, left, top, width, modules))


def _modules(pixels: Pixels) -> int | None:
    """Edge of the one code in a picture, by its version."""
    found = zxingcpp.read_barcodes(pixels, formats=zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.QRCode]))
    if len(found) != 1 or abs(found[0].orientation) > 1:
        return None
    extra: Any = found[0].extra  # the stubs say object; it is a dict of the particulars of this symbology
    return 17 + 4 * int(extra["Version"])


def _normal(label: CleanLabel) -> CleanLabel:
    """The label with about :data:`PIXELS_PER_MODULE` and exactly the standard's quiet zone or more."""
    pixels, left, top, edge = label.pixels, label.left, label.top, label.edge
    if label.module_px < PIXELS_PER_MODULE:
        factor = -(-PIXELS_PER_MODULE * label.modules // edge)
        pixels = np.kron(pixels, np.ones((factor, factor), np.uint8))
        left, top, edge = left * factor, top * factor, edge * factor
    elif label.module_px >= _FINE:
        factor = int(label.module_px / PIXELS_PER_MODULE)
        # Begins at the code's own corner, so that modules stay sharp wherever they are whole dots.
        skip_x, skip_y = left % factor, top % factor
        pixels = shrink(pixels[skip_y:, skip_x:], factor)
        left, top, edge = left // factor, top // factor, round(edge / factor)
    quiet = -(-QUIET_MODULES * edge // label.modules)
    height, width = pixels.shape
    margin = max(0, quiet - min(left, top, width - left - edge, height - top - edge))
    return CleanLabel(
        label.name, label.text, pad(np.asarray(pixels), margin), left + margin, top + margin, edge, label.modules
    )


def blank_like(label: CleanLabel, value: int = WHITE) -> Pixels:
    """A picture of the label's size in one grey."""
    return np.full_like(label.pixels, value)
