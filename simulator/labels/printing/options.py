"""The user's options for paper, printers and text, of every format that prints."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from simulator.labels.errors import LabelError
from simulator.labels.printing.brother import Tape, find_tape
from simulator.labels.printing.estimate import PrintAssumptions
from simulator.labels.printing.grid import Grid, GridPlacement, fit_grid, paper_size
from simulator.labels.printing.layout import Room
from simulator.labels.printing.sheet import Marks
from simulator.labels.printing.stock import find_stock

SIZE_MM: Final = 25.0
"""A code's longest edge where nobody says anything and the label holds it."""

_SIZE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*[xX*]\s*([0-9]+(?:\.[0-9]+)?)\s*")
_LABEL_MIN_MM: Final = 5.0
_LABEL_MAX_MM: Final = 1000.0
_TEXT_MM: Final = 28.0
_PAD_MM: Final = 1.0
_TAPE_PAD_MM: Final = 0.5


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """Options of the printed formats.

    Attributes:
        paper: of the sheet, when it is plain: ``a4`` or ``letter``.
        stock: code of an Avery sheet, such as ``L7160``.
        grid: a sheet of one's own.
        placing: the printer's offset, and places of the first sheet that are used up.
        marks: lines beside the labels of a sheet.
        text: what stands on a label: ``identifier``, ``product_id``, ``name``, ``serial``; the first is large.
        label_mm: width and height of a label in the Zebra printer; ``None``: what code and text need.
        quantity: how often a Zebra printer prints each label.
        tape_mm: width of the tape in the Brother printer.
        assumed: of printer and paper, for the estimate.

    Raises:
        LabelError: an unknown paper, stock or tape, a stock and a grid, or a label size that cannot be.
    """

    paper: str = "a4"
    stock: str | None = None
    grid: Grid | None = None
    placing: GridPlacement = field(default_factory=GridPlacement)
    marks: Marks = Marks.AUTO
    text: tuple[str, ...] = ("identifier", "product_id")
    label_mm: tuple[float, float] | None = None
    quantity: int = 1
    tape_mm: int = 62
    assumed: PrintAssumptions = field(default_factory=PrintAssumptions)

    def __post_init__(self) -> None:
        paper_size(self.paper)
        find_tape(self.tape_mm)
        if self.stock is not None:
            find_stock(self.stock)
            if self.grid is not None:
                raise LabelError("give --stock or --grid, not both")
        for value in self.label_mm or ():
            if not _LABEL_MIN_MM <= value <= _LABEL_MAX_MM:
                raise LabelError(f"--label-mm has an edge of {value:g}: give {_LABEL_MIN_MM:g} to {_LABEL_MAX_MM:g}")

    @property
    def sheet(self) -> Grid | None:
        """The sheet whose labels are cut already; ``None`` for plain paper."""
        return find_stock(self.stock) if self.stock is not None else self.grid

    @property
    def tape(self) -> Tape:
        """The tape in the Brother printer."""
        return find_tape(self.tape_mm)

    def sheet_grid(self, size_mm: float) -> Grid:
        """The grid that codes of this size are printed on.

        Raises:
            LabelError: the code does not fit it, or nothing of the first sheet is left.
        """
        grid = self.sheet or fit_grid(self.paper, size_mm)
        if size_mm > grid.code_max_mm + 1e-6:
            raise LabelError(
                f"a code of {size_mm:g} mm does not fit a label of {grid.cell_width_mm:.4g} x "
                f"{grid.cell_height_mm:.4g} mm: at most --size-mm {_down(grid.code_max_mm):g}"
            )
        self.placing.require_room(grid)
        return grid

    def zebra_room(self, size_mm: float) -> Room:
        """The label in the Zebra printer."""
        if self.label_mm:
            return Room(*self.label_mm, _PAD_MM)
        text_mm = _TEXT_MM if self.text else 0.0
        return Room(size_mm + 2 * _PAD_MM + text_mm, size_mm + 2 * _PAD_MM, _PAD_MM)

    def fitting_size_mm(self, formats: Collection[str]) -> float:
        """The edge of a code when nobody gives one: 25 mm, or what the smallest label of these formats holds."""
        bounds = [SIZE_MM]
        if "pdf" in formats and self.sheet:
            bounds.append(self.sheet.code_max_mm)
        if "zpl" in formats and self.label_mm:
            bounds.append(min(self.label_mm) - 2 * _PAD_MM)
        if "brother" in formats:
            bounds.append(self.tape.print_mm - 2 * _TAPE_PAD_MM)
        return _down(min(bounds))

    def described(self) -> dict[str, Any]:
        """The members that the manifest's ``batch`` takes from here: equal members mean equal files."""
        return {
            "paper": self.paper,
            "stock": self.stock,
            "grid": asdict(self.grid) if self.grid else None,
            "placing": asdict(self.placing),
            "marks": self.marks.value,
            "label_text": list(self.text),
            "label_mm": list(self.label_mm) if self.label_mm else None,
            "quantity": self.quantity,
            "tape_mm": self.tape_mm,
            "print_assumptions": asdict(self.assumed),
        }


def parse_label_mm(text: str) -> tuple[float, float]:
    """``50x25`` as width and height in millimetres.

    Raises:
        LabelError: not of this form.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise LabelError(f"--label-mm is {text!r}: give width and height in millimetres, such as 50x25")
    return float(found[1]), float(found[2])


def _down(size_mm: float) -> float:
    """Rounded down to a tenth of a millimetre."""
    return int(size_mm * 10 + 1e-6) / 10
