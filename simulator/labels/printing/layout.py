"""Lays out one label: where the code and its text are. No text is ever cut: it shrinks, wraps, or is refused.

The same decisions for paper and for Zebra printers; only how wide a text comes out is asked of the one who draws it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.labels.errors import LabelError

Measure = Callable[[str, bool, float], float]
"""Text, whether it is bold, and its size in millimetres in; its width in millimetres out."""

TEXT_MIN_MM: Final = 1.4
"""The smallest type, 4 points: below it nobody reads the text, and a printer of 203 dpi cannot form it."""

_BOLD_MM: Final = 3.5
_PLAIN_MM: Final = 2.1
_SHRINKS: Final = (1.0, 0.9, 0.8, 0.75)
_LEADING: Final = 1.25
_BASELINE: Final = 0.95
_GAP_MM: Final = 1.0
_EASE: Final = 1e-6
_SHOWN_MAX: Final = 60
_BREAKS: Final = re.compile(r"[-_ /.,:;+]")
_PIECES: Final = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Room:
    """The size of a label, and the margin inside its edge.

    Attributes:
        width_mm: its width.
        height_mm: its height.
        pad_mm: what stays free inside its edge.
    """

    width_mm: float
    height_mm: float
    pad_mm: float


@dataclass(frozen=True, slots=True)
class PlacedText:
    """One line of text.

    Attributes:
        text: what it says.
        bold: whether it is the bold one.
        size_mm: type size.
        left_mm: from the label's left edge to where it begins.
        baseline_mm: from the label's top edge down to its baseline.
    """

    text: str
    bold: bool
    size_mm: float
    left_mm: float
    baseline_mm: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand on a label.

    Attributes:
        code_left_mm: from the label's left edge to the code's quiet zone.
        code_top_mm: from the label's top edge to the code's quiet zone.
        texts: the lines, from the top.
    """

    code_left_mm: float
    code_top_mm: float
    texts: tuple[PlacedText, ...]


_Line = tuple[str, float, bool]


def lay_out(room: Room, code_mm: float, lines: Sequence[str], measure: Measure) -> Layout:
    """Place a code and its lines of text on a label: text to the right, or below where it comes out larger there.

    Args:
        room: the label.
        code_mm: the code's edge, quiet zone counted.
        lines: the first is set bold and larger; empty ones are left out.
        measure: how wide a text comes out.

    Raises:
        LabelError: the code or the text does not fit; the message names what would.
    """
    largest = min(room.width_mm, room.height_mm) - 2 * room.pad_mm
    if code_mm > largest + _EASE:
        raise LabelError(
            f"a code of {code_mm:g} mm does not fit a label of {room.width_mm:g} x {room.height_mm:g} mm: "
            f"at most --size-mm {max(0.0, largest * 100 // 1 / 100):g}"
        )
    shown = [(text, index == 0) for index, text in enumerate(filter(None, lines))]
    if not shown:
        return Layout((room.width_mm - code_mm) / 2, (room.height_mm - code_mm) / 2, ())
    free = room.height_mm - 2 * room.pad_mm
    beside = _set(shown, room.width_mm - 2 * room.pad_mm - code_mm - _GAP_MM, free, measure)
    below = _set(shown, room.width_mm - 2 * room.pad_mm, free - code_mm, measure)
    if beside is None and below is None:
        text = " / ".join(text for text, _ in shown)
        text = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text)} characters)"
        raise LabelError(
            f"the text {text!r} does not fit a label of {room.width_mm:g} x "
            f"{room.height_mm:g} mm beside a code of {code_mm:.4g} mm: a smaller --size-mm, a larger label, or "
            "shorter identifiers and names"
        )
    if below is None or (beside is not None and _score(beside) >= _score(below)):
        return _beside(room, code_mm, beside or [])
    return _below(room, code_mm, below, measure)


def _score(lines: Sequence[_Line]) -> float:
    """The larger the type and the fewer the breaks, the better it reads."""
    return lines[0][1] - 0.2 * len(lines)


def _beside(room: Room, code_mm: float, lines: Sequence[_Line]) -> Layout:
    top = (room.height_mm - _height(lines)) / 2
    left = room.pad_mm + code_mm + _GAP_MM
    code_top = (room.height_mm - code_mm) / 2
    return Layout(room.pad_mm, code_top, tuple(_placed(lines, top, lambda _: left)))


def _below(room: Room, code_mm: float, lines: Sequence[_Line], measure: Measure) -> Layout:
    top = (room.height_mm - code_mm - _height(lines)) / 2

    def centred(line: _Line) -> float:
        text, size, bold = line
        return (room.width_mm - measure(text, bold, size)) / 2

    return Layout((room.width_mm - code_mm) / 2, top, tuple(_placed(lines, top + code_mm, centred)))


def _placed(lines: Sequence[_Line], top: float, left: Callable[[_Line], float]) -> list[PlacedText]:
    placed = []
    for line in lines:
        text, size, bold = line
        placed.append(PlacedText(text, bold, size, left(line), top + size * _BASELINE))
        top += size * _LEADING
    return placed


def _height(lines: Sequence[_Line]) -> float:
    return sum(size * _LEADING for _, size, _ in lines)


def _set(shown: Sequence[tuple[str, bool]], width: float, height: float, measure: Measure) -> list[_Line] | None:
    """The lines at the largest size at which all of them fit; ``None`` when they do not fit at the smallest."""
    if width <= 0 or height < TEXT_MIN_MM * _LEADING:
        return None
    scale = 1.0
    while True:
        lines = _at(shown, scale, width, measure)
        if lines is not None and _height(lines) <= height + _EASE:
            return lines
        if scale * _BOLD_MM <= TEXT_MIN_MM:
            return None
        scale *= 0.9


def _at(shown: Sequence[tuple[str, bool]], scale: float, width: float, measure: Measure) -> list[_Line] | None:
    lines: list[_Line] = []
    for text, bold in shown:
        full = (_BOLD_MM if bold else _PLAIN_MM) * scale
        found = _fit(text, full, bold=bold, width=width, measure=measure)
        if found is None:
            return None
        lines += found
    return lines


def _fit(text: str, full: float, *, bold: bool, width: float, measure: Measure) -> list[_Line] | None:
    """One line down to three quarters of the size, else as many lines as it takes."""
    size = full
    for shrink in _SHRINKS:
        size = max(TEXT_MIN_MM, full * shrink)
        if measure(text, bold, size) <= width + _EASE:
            return [(text, size, bold)]
    pieces = _wrap(text, lambda part: measure(part, bold, size) <= width + _EASE)
    return None if pieces is None else [(piece, size, bold) for piece in pieces]


def _wrap(text: str, fits: Callable[[str], bool]) -> list[str] | None:
    r"""The text in lines that fit, broken after a sign such as ``-`` where one is near, never inside ``\uXXXX``."""
    lines: list[str] = []
    line = ""
    for piece in _PIECES.findall(text):
        if not fits(piece):
            return None
        while line and not fits(line + piece):
            near = [found.end() for found in _BREAKS.finditer(line) if found.end() * 2 >= len(line)]
            at = near[-1] if near else len(line)
            lines.append(line[:at])
            line = line[at:]
        line += piece
    return [*lines, line]
