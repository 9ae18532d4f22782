"""Labels for Brother QL printers: the stream of raster commands that the printer takes by USB or network.

Source: Brother, "Raster Command Reference QL-800/810W/820NWB" and the one of QL-710W/720NW: chapter 2.3 "Page data
details" (print area and margins of each tape, in pins of the print head) and chapter 4 "Printing command details".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from simulator.labels.errors import LabelError
from simulator.labels.printing.dots import MM_PER_INCH, Bitmap, DotLabel, draw_dots, measure_dots
from simulator.labels.printing.layout import Room, text_height_mm
from simulator.labels.printing.sheet import printable

DPI: Final = 300
PINS: Final = 720
"""Dots across the print head; every raster line has as many, whatever the tape."""

LENGTH_MIN: Final = 150
LENGTH_MAX: Final = 11_811
"""Raster lines of a label on continuous tape."""

_PAD_MM: Final = 0.5
_BESIDE_MIN_MM: Final = 14.0
_FEED_DOTS: Final = 35
_CONTINUOUS: Final = 0x0A
_KIND_WIDTH_LENGTH_RECOVER: Final = 0x02 | 0x04 | 0x08 | 0x80
_QUALITY: Final = 0x40
_AUTO_CUT: Final = 0x40
_CUT_AT_END: Final = 0x08


@dataclass(frozen=True, slots=True)
class Tape:
    """A continuous tape of a label printer.

    Attributes:
        width_mm: as the printer's commands name the tape.
        dots: width of the print area.
        right_pins: pins of the head beyond the print area's right edge.
    """

    width_mm: int
    dots: int
    right_pins: int

    @property
    def print_mm(self) -> float:
        """Width of the print area."""
        return self.dots * MM_PER_INCH / DPI


TAPES: Final[Mapping[int, Tape]] = MappingProxyType(
    {
        tape.width_mm: tape
        for tape in (
            Tape(12, 106, 29),
            Tape(29, 306, 6),
            Tape(38, 413, 12),
            Tape(50, 554, 12),
            Tape(54, 590, 0),
            Tape(62, 696, 12),
        )
    }
)
"""Continuous DK tapes by their width in millimetres."""


def find_tape(width_mm: int) -> Tape:
    """The tape of this width.

    Raises:
        LabelError: there is none.
    """
    if width_mm not in TAPES:
        raise LabelError(f"no Brother tape of {width_mm} mm: --tape-mm takes {', '.join(map(str, TAPES))}")
    return TAPES[width_mm]


def require_brother(dpi: int, tape: Tape, size_mm: float) -> None:
    """Refuse a resolution other than Brother's, or a code wider than the tape prints.

    Raises:
        LabelError: with what would do.
    """
    if dpi != DPI:
        raise LabelError(f"Brother QL printers have {DPI} dpi, not {dpi}: give --dpi {DPI}")
    largest = tape.print_mm - 2 * _PAD_MM
    if size_mm > largest + 1e-6:
        wider = [other.width_mm for other in TAPES.values() if size_mm <= other.print_mm - 2 * _PAD_MM]
        also = f" or --tape-mm {wider[0]}" if wider else ""
        raise LabelError(
            f"a code of {size_mm:g} mm does not fit the {tape.width_mm} mm tape, which prints {tape.print_mm:.1f} mm: "
            f"at most --size-mm {largest * 10 // 1 / 10:g}{also}"
        )


def tape_room(label: DotLabel, tape: Tape) -> Room:
    """The label that a piece of tape makes: as wide as it prints, as long as code and text need.

    Text stands beside the code where the tape is wide enough, else below it.

    Raises:
        LabelError: the label would be longer than the printer makes them.
    """
    edge_mm = label.edge_dots * MM_PER_INCH / DPI
    length = edge_mm + 2 * _PAD_MM
    if any(label.lines) and tape.print_mm - edge_mm < _BESIDE_MIN_MM:
        lines = [printable(line) for line in label.lines]
        length += text_height_mm(lines, tape.print_mm - 2 * _PAD_MM, measure_dots(DPI)) or 0.0
    # Half a dot more, so that rounding down to whole dots loses nothing.
    length = max(length, LENGTH_MIN * MM_PER_INCH / DPI) + 0.5 * MM_PER_INCH / DPI
    if length > LENGTH_MAX * MM_PER_INCH / DPI:
        raise LabelError(f"the label of {label.identifier!r} is {length:.0f} mm long: shorter text, or a wider tape")
    return Room(tape.print_mm, length, _PAD_MM)


def draw_tape(label: DotLabel, tape: Tape) -> Bitmap:
    """One label as the tape shows it, at the tape's exact width in dots.

    Raises:
        LabelError: the code or the text does not fit.
    """
    return draw_dots(label, room=tape_room(label, tape), dpi=DPI)


def begin_job() -> bytes:
    """What goes before the first label: clear what is left of another job, initialise, raster mode."""
    return bytes(400) + b"\x1b@" + b"\x1bia\x01"


def page_commands(bitmap: Bitmap, tape: Tape, *, first: bool, last: bool) -> bytes:
    """One label: print information, cutting, margins, a raster line per row of dots, print.

    Args:
        bitmap: as wide as the tape's print area.
        tape: what is in the printer; it reports an error when another one is.
        first: no label goes before it in this job.
        last: none follows; the tape is fed and cut.
    """
    information = struct.pack(
        "<BBBBIBB",
        _KIND_WIDTH_LENGTH_RECOVER | _QUALITY,
        _CONTINUOUS,
        tape.width_mm,
        0,
        bitmap.height,
        0 if first else 1,
        0,
    )
    head = b"\x1biz" + information + b"\x1biM" + bytes([_AUTO_CUT]) + b"\x1biA\x01" + b"\x1biK" + bytes([_CUT_AT_END])
    lines = b"".join(b"g\x00" + bytes([PINS // 8]) + _raster_line(row, bitmap, tape) for row in bitmap.rows)
    return head + b"\x1bid" + struct.pack("<H", _FEED_DOTS) + lines + (b"\x1a" if last else b"\x0c")


def _raster_line(row: bytes, bitmap: Bitmap, tape: Tape) -> bytes:
    """A row as the head prints it: pin 0 is at the right, so the line is mirrored."""
    dots = f"{int.from_bytes(row, 'big'):0{bitmap.stride * 8}b}"[: bitmap.width]
    line = "0" * tape.right_pins + dots[::-1]
    return int(line.ljust(PINS, "0"), 2).to_bytes(PINS // 8, "big")
