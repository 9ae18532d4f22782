"""Label sheets that one can buy, by their code.

Where the figures come from: the label database that LibreOffice ships (``share/labels/labels.xml``, 7.4), compared
with that of gLabels (``templates/avery-*-templates.xml``, 3.4.1); for US sheets, whose measures are fractions of an
inch, the fraction that both round. L7120 is in neither: its figures come from one public label generator and add up to
A4 to the hundredth of a millimetre. A code that no source agrees on is left out: measure the sheet and write a grid
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from simulator.labels.errors import LabelError
from simulator.labels.printing.grid import PAPERS, Grid

_INCH: Final = 25.4


def _sheet(paper: str, across: tuple[int, float, float, float], down: tuple[int, float, float, float]) -> Grid:
    """A grid out of ``(count, label, pitch, margin)`` across and down, in millimetres."""
    columns, width, pitch_x, left = across
    rows, height, pitch_y, top = down
    page_width, page_height = PAPERS[paper]
    return Grid(page_width, page_height, columns, rows, width, height, left, top, pitch_x, pitch_y)


def _inches(count: int, label: float, pitch: float, margin: float) -> tuple[int, float, float, float]:
    return count, label * _INCH, pitch * _INCH, margin * _INCH


_L4731: Final = _sheet("a4", (7, 25.4, 27.94, 8.48), (27, 10.0, 10.0, 13.5))
_L4736: Final = _sheet("a4", (4, 45.72, 48.26, 9.75), (12, 21.17, 21.17, 21.48))
_L3490: Final = _sheet("a4", (3, 70.0, 70.0, 0.0), (8, 36.0, 36.0, 4.5))
_5160: Final = _sheet("letter", _inches(3, 2.625, 2.75, 0.1875), _inches(10, 1, 1, 0.5))
_5163: Final = _sheet("letter", _inches(2, 4, 4.1875, 0.15625), _inches(5, 2, 2, 0.5))
_5164: Final = _sheet("letter", _inches(2, 4, 4.1875, 0.15625), _inches(3, 10 / 3, 10 / 3, 0.5))
_5167: Final = _sheet("letter", _inches(4, 1.75, 2.0625, 0.28125), _inches(20, 0.5, 0.5, 0.5))

STOCKS: Final[Mapping[str, Grid]] = MappingProxyType(
    {
        "L4730": _sheet("a4", (10, 17.78, 20.32, 4.67), (27, 10.0, 10.0, 13.5)),
        "L4731": _L4731,
        "L4732": _sheet("a4", (5, 35.56, 38.1, 11.02), (16, 16.93, 16.93, 13.06)),
        "L4736": _L4736,
        "L6008": _L4731,
        "L6009": _L4736,
        "L7120": _sheet("a4", (5, 35.0, 40.0, 7.5), (7, 35.0, 40.0, 11.0)),
        "L7159": _sheet("a4", (3, 64.0, 66.54, 6.46), (8, 33.86, 33.86, 13.06)),
        "L7160": _sheet("a4", (3, 63.5, 66.04, 7.21), (7, 38.1, 38.1, 15.15)),
        "L7161": _sheet("a4", (3, 63.5, 66.04, 7.21), (6, 46.56, 46.56, 8.82)),
        "L7162": _sheet("a4", (2, 99.06, 101.6, 4.67), (8, 33.87, 33.87, 13.02)),
        "L7163": _sheet("a4", (2, 99.06, 101.6, 4.67), (7, 38.1, 38.1, 15.15)),
        "L7164": _sheet("a4", (3, 63.5, 66.04, 7.21), (4, 71.97, 71.97, 4.56)),
        "L7165": _sheet("a4", (2, 99.06, 101.6, 4.67), (4, 67.73, 67.73, 13.04)),
        "L7651": _sheet("a4", (5, 38.1, 40.64, 4.67), (13, 21.17, 21.17, 10.9)),
        "L7654": _sheet("a4", (4, 45.72, 48.26, 9.75), (10, 25.4, 25.4, 21.5)),
        "L7658": _L4731,
        "3475": _L3490,
        "3490": _L3490,
        "3666": _sheet("a4", (5, 38.1, 38.1, 9.75), (13, 21.2, 21.2, 10.7)),
        "5160": _5160,
        "8160": _5160,
        "5163": _5163,
        "8163": _5163,
        "5164": _5164,
        "8164": _5164,
        "5167": _5167,
        "8167": _5167,
    }
)
"""Avery and Avery Zweckform sheets by code; L and four-digit Zweckform codes are A4, the others US letter."""


def find_stock(code: str) -> Grid:
    """The grid of a sheet, whatever case and spaces its code is written with.

    Raises:
        LabelError: no such code; the message names the nearest and the way to a grid of one's own.
    """
    wanted = code.upper().removeprefix("AVERY").strip(" -")
    if wanted in STOCKS:
        return STOCKS[wanted]
    near = get_close_matches(wanted, STOCKS, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}? Known are" if near else "known are"
    raise LabelError(f"no stock {code!r}: {hint} {', '.join(STOCKS)}; for any other sheet write a grid file (--grid)")
