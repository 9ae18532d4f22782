"""Labels for Zebra printers: ZPL II with each label as one picture (``^GFA``).

Source: Zebra, ZPL II Programming Guide, commands ``^GF``, ``^FO``, ``^PW``, ``^LL``, ``^PQ`` and "Alternative Data
Compression Scheme for ~DG and ~DB Commands", of which ``^GFA`` takes the signs ``,`` and ``:`` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from simulator.labels.errors import LabelError
from simulator.labels.printing.dots import DotLabel, draw_dots
from simulator.labels.printing.layout import Room

RESOLUTIONS: Final = (203, 300, 600)
"""Dots per inch of Zebra's print heads."""


def require_zebra(dpi: int) -> None:
    """Refuse a resolution that no Zebra printer has.

    Raises:
        LabelError: with what would do.
    """
    if dpi not in RESOLUTIONS:
        raise LabelError(f"Zebra printers have {', '.join(map(str, RESOLUTIONS))} dpi, not {dpi}: give one as --dpi")


def draw_zpl(label: DotLabel, *, room: Room, dpi: int) -> bytes:
    """One label as a ZPL format, ``^XA`` to ``^XZ``.

    Args:
        label: code and text.
        room: the label stock's size.
        dpi: of the print head.

    Raises:
        LabelError: the code or the text does not fit.
    """
    bitmap = draw_dots(label, room=room, dpi=dpi)
    total = bitmap.stride * bitmap.height
    lines = (
        "^XA",
        # A comment ends at the next command: nothing of an identifier may look like one.
        f"^FX {quote(label.identifier, safe=' :/+=,@()', errors='replace').replace('~', '%7E')}^FS",
        f"^PW{bitmap.width}^LL{bitmap.height}^LH0,0^LS0^LT0",
        # The picture is the whole label, quiet zone and all: white rows and ends of rows cost a letter each.
        f"^FO0,0^GFA,{total},{total},{bitmap.stride},{pack(bitmap.rows)}^FS",
        "^PQ1",
        "^XZ",
    )
    return ("\n".join(lines) + "\n").encode("ascii")


def pack(rows: Sequence[bytes]) -> str:
    """Rows in hexadecimal, of which ``,`` fills the rest with white, and ``:`` is the row above once more."""
    above = None
    packed = []
    for row in rows:
        digits = row.hex().upper()
        filled = digits.rstrip("0") + "," if digits.endswith("0") else digits
        packed.append(":" if row == above else filled)
        above = row
    return "".join(packed)
