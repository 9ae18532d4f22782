"""Labels for Zebra printers: ZPL II with each label as one picture (``^GFA``).

Source: Zebra, ZPL II Programming Guide, commands ``^GF``, ``^FO``, ``^PW``, ``^LL``, ``^PQ`` and "Alternative Data
Compression Scheme for ~DG and ~DB Commands", which ``^GFA`` takes too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from simulator.labels.errors import LabelError
from simulator.labels.printing.dots import DotLabel, draw_dots
from simulator.labels.printing.layout import Room

RESOLUTIONS: Final = (203, 300, 600)
"""Dots per inch of Zebra's print heads."""

_QUANTITY_MAX: Final = 99_999_999
_ONES: Final = "GHIJKLMNOPQRSTUVWXY"
_TWENTIES: Final = "ghijklmnopqrstuvwxyz"
_RUN_MIN: Final = 3
_RUN_MAX: Final = 419


def require_zebra(dpi: int, quantity: int) -> None:
    """Refuse a resolution that no Zebra printer has, or a quantity that its language cannot say.

    Raises:
        LabelError: with what would do.
    """
    if dpi not in RESOLUTIONS:
        raise LabelError(f"Zebra printers have {', '.join(map(str, RESOLUTIONS))} dpi, not {dpi}: give one as --dpi")
    if not 1 <= quantity <= _QUANTITY_MAX:
        raise LabelError(f"--quantity is {quantity}: give 1 to {_QUANTITY_MAX}")


def draw_zpl(label: DotLabel, *, room: Room, dpi: int, quantity: int = 1) -> bytes:
    """One label as a ZPL format, ``^XA`` to ``^XZ``.

    Args:
        label: code and text.
        room: the label stock's size.
        dpi: of the print head.
        quantity: how many of it to print.

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
        f"^PQ{quantity}",
        "^XZ",
    )
    return ("\n".join(lines) + "\n").encode("ascii")


def pack(rows: Sequence[bytes]) -> str:
    """Rows in Zebra's compressed hexadecimal.

    A letter before a digit repeats it (``G`` to ``Y`` 1 to 19 times, ``g`` to ``z`` 20 to 400), ``,`` fills a row
    with white, ``!`` with black, and ``:`` is the row above once more.
    """
    packed = []
    above = None
    for row in rows:
        packed.append(":" if row == above else _packed_row(row))
        above = row
    return "".join(packed)


def _packed_row(row: bytes) -> str:
    digits = row.hex().upper()
    for filler, sign in (("0", ","), ("F", "!")):
        if digits.endswith(filler):
            return "".join(_runs(digits.rstrip(filler))) + sign
    return "".join(_runs(digits))


def _runs(digits: str) -> Iterator[str]:
    for digit, group in itertools.groupby(digits):
        left = len(list(group))
        while left:
            run = min(left, _RUN_MAX)
            left -= run
            yield digit * run if run < _RUN_MIN else _repeat(run) + digit


def _repeat(count: int) -> str:
    twenties, ones = divmod(count, 20)
    return (_TWENTIES[twenties - 1] if twenties else "") + (_ONES[ones - 1] if ones else "")
