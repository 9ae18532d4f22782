"""Where the code and the text of one label stand. No text is ever cut: it shrinks, wraps, or is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reportlab.pdfbase.pdfmetrics import stringWidth

from simulator.labels.errors import LabelError
from simulator.labels.grid import Grid

TEXT_MIN_MM: Final = 1.4
"""The smallest type, 4 points: below it nobody reads the text, and a printer of 203 dpi cannot form it."""
FONTS: Final = ("Helvetica-Bold", "Helvetica")
"""Of the first line, and of the others."""
_SIZES_MM: Final = (3.5, 2.1)
_LEADING: Final = 1.25
_BASELINE: Final = 0.95
_GAP_MM: Final = 1.0
_EASE: Final = 1e-6
_BREAKS: Final = re.compile(r"[-_ /.,:;+]")
_PIECES: Final = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlacedText:
    """One line of text; where its baseline begins, in millimetres from the label's left and top edge."""

    text: str
    font: str
    size_mm: float
    left_mm: float
    baseline_mm: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the code begins, quiet zone counted, in millimetres from the label's left and top edge, and the lines."""

    code_left_mm: float
    code_top_mm: float
    texts: tuple[PlacedText, ...]


def lay_out(grid: Grid, code_mm: float, lines: Sequence[str]) -> Layout:
    """Place a code and its lines of text on a label: text to the right, or below where it comes out larger there.

    Args:
        grid: of which the label is one.
        code_mm: the code's edge, quiet zone counted.
        lines: the first is set bold and larger.

    Raises:
        LabelError: the text does not fit; the message names what would help.
    """
    width, height, pad = grid.label_width_mm, grid.label_height_mm, grid.pad_mm
    shown = [(printable(text), FONTS[index > 0], _SIZES_MM[index > 0]) for index, text in enumerate(lines)]
    free = height - 2 * pad
    beside = _set(shown, width - 2 * pad - code_mm - _GAP_MM, free)
    below = _set(shown, width - 2 * pad, free - code_mm)
    if beside and (not below or _score(beside) >= _score(below)):
        left = pad + code_mm + _GAP_MM
        return Layout(pad, (height - code_mm) / 2, _placed(beside, left, (height - _height(beside)) / 2))
    if below:
        left = (width - max(stringWidth(*line) for line in below)) / 2
        top = (height - code_mm - _height(below)) / 2
        return Layout((width - code_mm) / 2, top, _placed(below, left, top + code_mm))
    text = " / ".join(lines)
    raise LabelError(
        f"the text {text[:60]!r} does not fit a label of {width:.4g} x {height:.4g} mm beside a code of {code_mm:.4g} "
        "mm: a smaller --size-mm, a larger label, or shorter identifiers and names"
    )


def printable(text: str) -> str:
    r"""The text in characters that the PDF's built-in fonts have; every other one as ``\uXXXX``."""
    return "".join(char if char.isprintable() and _in_font(char) else _escape(char) for char in text)


def _in_font(char: str) -> bool:
    return char.encode("cp1252", "ignore") != b""


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


_Line = tuple[str, str, float]
"""A text, its font and its size in millimetres."""


def _score(lines: Sequence[_Line]) -> float:
    """The larger the type and the fewer the breaks, the better it reads."""
    return lines[0][2] - 0.2 * len(lines)


def _height(lines: Sequence[_Line]) -> float:
    return sum(size * _LEADING for _, _, size in lines)


def _placed(lines: Sequence[_Line], left: float, top: float) -> tuple[PlacedText, ...]:
    placed = []
    for text, font, size in lines:
        placed.append(PlacedText(text, font, size, left, top + size * _BASELINE))
        top += size * _LEADING
    return tuple(placed)


def _set(shown: Sequence[_Line], width: float, height: float) -> list[_Line]:
    """The lines at the largest size at which all of them fit; none when they do not fit at the smallest."""
    scale = 1.0
    while scale * _SIZES_MM[0] > TEXT_MIN_MM:
        lines = [
            (part, font, max(TEXT_MIN_MM, size * scale))
            for text, font, size in shown
            for part in _wrap(text, font, max(TEXT_MIN_MM, size * scale), width)
        ]
        if all(stringWidth(*line) <= width + _EASE for line in lines) and _height(lines) <= height + _EASE:
            return lines
        scale *= 0.9
    return []


def _wrap(text: str, font: str, size: float, width: float) -> list[str]:
    r"""The text in lines, broken after a sign such as ``-`` where one is near, never inside ``\uXXXX``."""
    lines: list[str] = []
    line = ""
    for piece in _PIECES.findall(text):
        if line and stringWidth(line + piece, font, size) > width + _EASE:
            near = [found.end() for found in _BREAKS.finditer(line) if found.end() * 2 >= len(line)]
            at = near[-1] if near else len(line)
            lines.append(line[:at])
            line = line[at:]
        line += piece
    return [*lines, line]
