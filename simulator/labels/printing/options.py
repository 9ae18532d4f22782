"""The user's options for paper and printers, of every format that prints."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Final

from simulator.labels.errors import LabelError
from simulator.labels.printing.grid import Grid, fit_grid, paper_size
from simulator.labels.printing.layout import Room

SIZE_MM: Final = 25.0
"""A code's longest edge where nobody says anything and the label holds it."""

_SIZE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*[xX*]\s*([0-9]+(?:\.[0-9]+)?)\s*")
_LABEL_MIN_MM: Final = 5.0
_LABEL_MAX_MM: Final = 1000.0
_TEXT_MM: Final = 28.0
_PAD_MM: Final = 1.0


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """Options of the printed formats.

    Attributes:
        paper: of the sheet, when it is plain: ``a4`` or ``letter``.
        grid: a sheet of one's own, whose labels are cut already.
        label_mm: width and height of a label in the Zebra printer; ``None``: what code and text need.

    Raises:
        LabelError: an unknown paper, or a label size that cannot be.
    """

    paper: str = "a4"
    grid: Grid | None = None
    label_mm: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        paper_size(self.paper)
        for value in self.label_mm or ():
            if not _LABEL_MIN_MM <= value <= _LABEL_MAX_MM:
                raise LabelError(f"--label-mm has an edge of {value:g}: give {_LABEL_MIN_MM:g} to {_LABEL_MAX_MM:g}")

    def sheet_grid(self, size_mm: float) -> Grid:
        """The grid that codes of this size are printed on.

        Raises:
            LabelError: the code does not fit it.
        """
        grid = self.grid or fit_grid(self.paper, size_mm)
        if size_mm > grid.code_max_mm + 1e-6:
            raise LabelError(
                f"a code of {size_mm:g} mm does not fit a label of {grid.cell_width_mm:.4g} x "
                f"{grid.cell_height_mm:.4g} mm: at most --size-mm {_down(grid.code_max_mm):g}"
            )
        return grid

    def zebra_room(self, size_mm: float) -> Room:
        """The label in the Zebra printer."""
        if self.label_mm:
            return Room(*self.label_mm, _PAD_MM)
        return Room(size_mm + 2 * _PAD_MM + _TEXT_MM, size_mm + 2 * _PAD_MM, _PAD_MM)

    def fitting_size_mm(self, formats: Collection[str]) -> float:
        """The edge of a code when nobody gives one: 25 mm, or what the smallest label of these formats holds."""
        bounds = [SIZE_MM]
        if "pdf" in formats and self.grid:
            bounds.append(self.grid.code_max_mm)
        if "zpl" in formats and self.label_mm:
            bounds.append(min(self.label_mm) - 2 * _PAD_MM)
        return _down(min(bounds))

    def described(self) -> dict[str, Any]:
        """The members that the manifest's ``batch`` takes from here: equal members mean equal files."""
        return {
            "paper": self.paper,
            "grid": asdict(self.grid) if self.grid else None,
            "label_mm": list(self.label_mm) if self.label_mm else None,
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
