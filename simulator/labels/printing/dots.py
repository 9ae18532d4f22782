"""A label as printer dots: what a thermal printer is sent. Each module is a square of whole dots.

Text is drawn here instead of by the printer: a printer's own fonts differ from model to model, so nobody could say
beforehand whether a text fits, and a text with ``^`` in it would be a command.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from simulator.labels.printing.layout import Measure, Room, lay_out
from simulator.labels.printing.sheet import printable
from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix

MM_PER_INCH: Final = 25.4


@dataclass(frozen=True, slots=True)
class DotLabel:
    """One label for a printer of dots.

    Attributes:
        identifier: names the label where the printer's language has comments.
        lines: the text; the first line is bold.
        matrix: the code.
        dots_per_module: edge of a module in dots.
    """

    identifier: str
    lines: tuple[str, ...]
    matrix: Matrix
    dots_per_module: int

    @property
    def edge_dots(self) -> int:
        """Edge of the code with its quiet zone."""
        return self.matrix.modules_with_quiet_zone * self.dots_per_module


@dataclass(frozen=True, slots=True)
class Bitmap:
    """A picture of one bit per dot.

    Attributes:
        width: in dots.
        height: in dots.
        rows: for each line ``stride`` bytes, the leftmost dot in the highest bit, 1 black; what is over is 0.
    """

    width: int
    height: int
    rows: tuple[bytes, ...]

    @property
    def stride(self) -> int:
        """Bytes of a line."""
        return (self.width + 7) // 8


_INVERTED: Final = bytes(255 - value for value in range(256))


def to_dots(mm: float, dpi: int) -> int:
    """Millimetres as whole dots, rounded down."""
    return int(mm * dpi / MM_PER_INCH + 1e-6)


def measure_dots(dpi: int) -> Measure:
    """How wide a text comes out on a printer of this resolution."""

    def measure(text: str, bold: bool, size_mm: float) -> float:
        return _font(bold=bold, size_dots=to_dots(size_mm, dpi)).getlength(text) * MM_PER_INCH / dpi

    return measure


def draw_dots(label: DotLabel, *, room: Room, dpi: int) -> Bitmap:
    """Draw a label as dots; its size is the room's, rounded down to whole dots.

    Raises:
        LabelError: the code or the text does not fit.
    """
    width, height = to_dots(room.width_mm, dpi), to_dots(room.height_mm, dpi)
    image = Image.new("1", (width, height), 1)
    pen = ImageDraw.Draw(image)
    pen.fontmode = "1"
    texts = [printable(line) for line in label.lines]
    layout = lay_out(room, label.edge_dots * MM_PER_INCH / dpi, texts, measure_dots(dpi))
    dots, left, top = label.dots_per_module, to_dots(layout.code_left_mm, dpi), to_dots(layout.code_top_mm, dpi)
    for x, y, run in label.matrix.dark_runs():
        at_x, at_y = left + (x + QUIET_MODULES) * dots, top + (y + QUIET_MODULES) * dots
        pen.rectangle((at_x, at_y, at_x + run * dots - 1, at_y + dots - 1), fill=0)
    for text in layout.texts:
        font = _font(bold=text.bold, size_dots=to_dots(text.size_mm, dpi))
        at = to_dots(text.left_mm, dpi), to_dots(text.baseline_mm, dpi)
        pen.text(at, text.text, fill=0, font=font, anchor="ls")
    stride = (width + 7) // 8
    mask = (0xFF << (stride * 8 - width)) & 0xFF
    data = image.tobytes().translate(_INVERTED)
    lines = (data[start : start + stride] for start in range(0, stride * height, stride))
    return Bitmap(width, height, tuple(line[:-1] + bytes([line[-1] & mask]) for line in lines))


@cache
def _font(*, bold: bool, size_dots: int) -> ImageFont.FreeTypeFont:
    """Bitstream Vera, which reportlab brings along, without a shaper: the same dots on every machine."""
    name = "VeraBd.ttf" if bold else "Vera.ttf"
    with as_file(files("reportlab") / "fonts" / name) as path:
        return ImageFont.truetype(str(path), max(1, size_dots), layout_engine=ImageFont.Layout.BASIC)
