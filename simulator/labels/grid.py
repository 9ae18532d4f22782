"""Where labels stand on a page: plain paper to be cut, a roll of single labels, or a sheet whose labels are cut."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent.wire.models import describe_faults
from simulator.labels.errors import LabelError

PAPERS: Final = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}
"""Width and height in millimetres by paper name."""
SIZE_MM: Final = 25.0
"""A code's longest edge where nobody says anything and the label holds it."""
_ROLL: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)[xX]([0-9]+(?:\.[0-9]+)?)")
_MARGIN_MM: Final = 10.0
_FOOT_MM: Final = 14.0
_PAD_MM: Final = 2.0
_TEXT_MM: Final = 28.0
_EASE_MM: Final = 0.05

_Length = Annotated[float, Field(gt=0, le=2000, allow_inf_nan=False)]
_Place = Annotated[float, Field(ge=0, le=2000, allow_inf_nan=False)]


class Grid(BaseModel):
    """Labels on a page, all in millimetres: the keys of a sheet's YAML file.

    Where a file says nothing, the page is A4, labels touch, and they stand in its middle.

    Attributes:
        pitch_x_mm: from one label's left edge to the next one's; ``pitch_y_mm`` from top edge to top edge.
        left_mm: from the paper's left edge to the first label; ``top_mm`` from its top edge.
        pad_mm: what stays free inside a label's edge, since sheets are cut and fed with some play.
        to_cut: the labels are to be cut apart along marks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    page_width_mm: _Length = PAPERS["a4"][0]
    page_height_mm: _Length = PAPERS["a4"][1]
    columns: Annotated[int, Field(ge=1, le=100)]
    rows: Annotated[int, Field(ge=1, le=100)]
    label_width_mm: _Length
    label_height_mm: _Length
    pitch_x_mm: _Length
    pitch_y_mm: _Length
    left_mm: _Place
    top_mm: _Place
    pad_mm: _Place = 1
    to_cut: bool = False

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        full = {**given}
        for across, count, place, page in (
            ("width", "columns", "left", PAPERS["a4"][0]),
            ("height", "rows", "top", PAPERS["a4"][1]),
        ):
            size = full.get(f"label_{across}_mm", 1)
            pitch = full.setdefault("pitch_x_mm" if across == "width" else "pitch_y_mm", size)
            try:
                free = full.get(f"page_{across}_mm", page) - (full.get(count, 1) - 1) * pitch - size
            except TypeError:  # a value that is no number is refused below
                free = 0
            full.setdefault(f"{place}_mm", max(0.0, free / 2))
        return full

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, pitch, size, count in (
            ("pitch_x_mm", self.pitch_x_mm, self.label_width_mm, self.columns),
            ("pitch_y_mm", self.pitch_y_mm, self.label_height_mm, self.rows),
        ):
            if count > 1 and pitch < size - 1e-9:
                raise ValueError(f"labels of {size:g} mm overlap at {name} {pitch:g}: give at least {size:g}")
        right = self.left_mm + (self.columns - 1) * self.pitch_x_mm + self.label_width_mm
        for name, used, page in (
            ("width", right, self.page_width_mm),
            ("height", self.lower_edge_mm, self.page_height_mm),
        ):
            if used > page + _EASE_MM:
                raise ValueError(
                    f"the labels take {used:g} mm of the page's {name} of {page:g} mm: fewer or smaller labels, or "
                    "another page"
                )
        return self

    @property
    def lower_edge_mm(self) -> float:
        """Where the last row ends."""
        return self.top_mm + (self.rows - 1) * self.pitch_y_mm + self.label_height_mm

    @property
    def per_page(self) -> int:
        """Labels on a full page."""
        return self.columns * self.rows

    @property
    def code_max_mm(self) -> float:
        """The longest edge of a code, quiet zone counted, that fits a label."""
        return min(self.label_width_mm, self.label_height_mm) - 2 * self.pad_mm

    def cell(self, place: int) -> tuple[float, float]:
        """Left and top edge of a page's label in millimetres."""
        row, column = divmod(place, self.columns)
        return self.left_mm + column * self.pitch_x_mm, self.top_mm + row * self.pitch_y_mm


def open_sheet(sheet: str, size_mm: float | None) -> tuple[Grid, float]:
    """The grid that a command line asks for, and the edge of a code on it.

    Args:
        sheet: ``a4`` or ``letter`` for plain paper, ``50x25`` for single labels of that size in millimetres, such as
            a label printer has, or a YAML file with the keys of :class:`Grid`.
        size_mm: the edge that codes are to have; None for 25 mm, or as much as a label holds.

    Raises:
        LabelError: no such sheet, or the code does not fit a label.
    """
    if sheet in PAPERS:
        size_mm = SIZE_MM if size_mm is None else size_mm
        grid = _plain_paper(sheet, size_mm)
    elif roll := _ROLL.fullmatch(sheet):
        width, height = float(roll[1]), float(roll[2])
        page = {"page_width_mm": width, "page_height_mm": height, "label_width_mm": width, "label_height_mm": height}
        grid = _grid({**page, "columns": 1, "rows": 1}, f"--sheet {sheet}")
    else:
        grid = read_grid(Path(sheet))
    largest_mm = int(grid.code_max_mm * 10 + 1e-6) / 10
    size_mm = min(SIZE_MM, largest_mm) if size_mm is None else size_mm
    if size_mm > grid.code_max_mm + 1e-6:
        raise LabelError(
            f"a code of {size_mm:g} mm does not fit a label of {grid.label_width_mm:.4g} x {grid.label_height_mm:.4g} "
            f"mm: at most --size-mm {largest_mm:g}"
        )
    return grid, size_mm


def read_grid(path: Path) -> Grid:
    """A sheet of one's own (docs/labels.md, "Sheets").

    Raises:
        LabelError: the file cannot be read, or the grid cannot be; the message names the key.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise LabelError(
            f"cannot read the sheet {path}: {problem.strerror}; give a4, letter, a size such as 50x25, or a YAML file"
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as problem:
        raise LabelError(f"the sheet {path} is no YAML file: {' '.join(str(problem).split())}") from None
    return _grid(given, f"the sheet {path}")


def _grid(given: Any, name: str) -> Grid:
    try:
        return Grid.model_validate(given)
    except ValidationError as faults:
        raise LabelError(f"{name}: {describe_faults(faults)}") from None


def _plain_paper(paper: str, code_mm: float) -> Grid:
    """As many labels for codes of this edge as fit a page, to be cut apart."""
    width, height = PAPERS[paper]
    usable_width, usable_height = width - 2 * _MARGIN_MM, height - 2 * _MARGIN_MM - _FOOT_MM
    label_height = max(code_mm + 2 * _PAD_MM, 12.0)
    columns = max(1, int(usable_width // (code_mm + 2 * _PAD_MM + _TEXT_MM)))
    rows = int((usable_height + 1e-6) // label_height)
    label_width = usable_width / columns
    if rows < 1 or code_mm + 2 * _PAD_MM + _TEXT_MM / 2 > label_width:
        largest = min(usable_height, usable_width - _TEXT_MM / 2) - 2 * _PAD_MM
        raise LabelError(f"a code of {code_mm:g} mm does not fit on {paper}: at most --size-mm {int(largest)}")
    return Grid(
        page_width_mm=width,
        page_height_mm=height,
        columns=columns,
        rows=rows,
        label_width_mm=label_width,
        label_height_mm=label_height,
        pitch_x_mm=label_width,
        pitch_y_mm=label_height,
        left_mm=_MARGIN_MM,
        top_mm=_MARGIN_MM,
        pad_mm=_PAD_MM,
        to_cut=True,
    )
