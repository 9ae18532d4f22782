"""Where labels stand on a page: plain paper, or a grid of one's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from simulator.labels.errors import LabelError

PAPERS: Final = MappingProxyType({"a4": (210.0, 297.0), "letter": (215.9, 279.4)})
"""Width and height in millimetres by paper name."""

FOOT_MM: Final = 10.0
"""What the line at the foot needs below the last row of labels, the printer's own margin counted."""

_MARGIN_MM: Final = 10.0
_PLAIN_FOOT_MM: Final = 14.0
_PLAIN_PAD_MM: Final = 2.0
_PLAIN_TEXT_MM: Final = 28.0
_PLAIN_HEIGHT_MM: Final = 12.0
_PAD_MM: Final = 1.0
_ROUNDING_MM: Final = 0.05
_CELLS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Grid:
    """Where labels stand on a page, all in millimetres; columns from the left, rows from the top.

    Attributes:
        page_width_mm: the paper's width.
        page_height_mm: the paper's height.
        columns: labels side by side.
        rows: labels one under the other.
        cell_width_mm: width of a label.
        cell_height_mm: height of a label.
        left_mm: from the paper's left edge to the first column.
        top_mm: from the paper's top edge to the first row.
        pitch_x_mm: from one label's left edge to the next one's.
        pitch_y_mm: from one label's top edge to the next one's.
        pad_mm: what stays free inside a label's edge, since sheets are cut and fed with some play.
        precut: labels are cut already, so cut marks would only be seen on them.
    """

    page_width_mm: float
    page_height_mm: float
    columns: int
    rows: int
    cell_width_mm: float
    cell_height_mm: float
    left_mm: float
    top_mm: float
    pitch_x_mm: float
    pitch_y_mm: float
    pad_mm: float = _PAD_MM
    precut: bool = True

    @property
    def per_page(self) -> int:
        """Labels on a full page."""
        return self.columns * self.rows

    @property
    def code_max_mm(self) -> float:
        """The longest edge of a code, quiet zone counted, that fits a label."""
        return min(self.cell_width_mm, self.cell_height_mm) - 2 * self.pad_mm

    @property
    def foot_mm(self) -> float:
        """What is free between the last row and the paper's lower edge."""
        return self.page_height_mm - self.top_mm - (self.rows - 1) * self.pitch_y_mm - self.cell_height_mm

    def cell(self, index: int) -> tuple[int, float, float]:
        """Page from 0, and the cell's left and top in millimetres, of the place with this index."""
        page, place = divmod(index, self.per_page)
        row, column = divmod(place, self.columns)
        return page, self.left_mm + column * self.pitch_x_mm, self.top_mm + row * self.pitch_y_mm

    def require_on_page(self, what: str) -> None:
        """Refuse a grid that cannot be: labels that overlap, or lie partly off the paper.

        Args:
            what: names the grid in the message.

        Raises:
            LabelError: with what to change.
        """
        width = self.left_mm + (self.columns - 1) * self.pitch_x_mm + self.cell_width_mm
        height = self.top_mm + (self.rows - 1) * self.pitch_y_mm + self.cell_height_mm
        for name, count, pitch, size in (
            ("pitch_x_mm", self.columns, self.pitch_x_mm, self.cell_width_mm),
            ("pitch_y_mm", self.rows, self.pitch_y_mm, self.cell_height_mm),
        ):
            if count > 1 and pitch < size - 1e-9:
                raise LabelError(f"{what}: labels of {size:g} mm overlap at {name} {pitch:g}: at least {size:g} mm")
        for name, used, page in (("width", width, self.page_width_mm), ("height", height, self.page_height_mm)):
            if used > page + _ROUNDING_MM:
                raise LabelError(
                    f"{what}: the labels take {used:g} mm of the page's {name} of {page:g} mm: fewer or smaller "
                    "labels, smaller margins, or another page"
                )


def fit_grid(paper: str, code_mm: float) -> Grid:
    """The grid of plain paper for codes of this edge: as many as fit, to be cut apart.

    Raises:
        LabelError: no such paper, or the code is larger than the paper's printable part.
    """
    width, height = paper_size(paper)
    usable_width, usable_height = width - 2 * _MARGIN_MM, height - 2 * _MARGIN_MM - _PLAIN_FOOT_MM
    cell_height = max(code_mm + 2 * _PLAIN_PAD_MM, _PLAIN_HEIGHT_MM)
    columns = max(1, int(usable_width // (code_mm + 2 * _PLAIN_PAD_MM + _PLAIN_TEXT_MM)))
    rows = int((usable_height + 1e-6) // cell_height)
    cell_width = usable_width / columns
    if rows < 1 or code_mm + 2 * _PLAIN_PAD_MM + _PLAIN_TEXT_MM / 2 > cell_width:
        largest = min(usable_height, usable_width - _PLAIN_TEXT_MM / 2) - 2 * _PLAIN_PAD_MM
        raise LabelError(f"a code of {code_mm:g} mm does not fit on {paper}: at most --size-mm {int(largest)}")
    return Grid(
        width,
        height,
        columns,
        rows,
        cell_width,
        cell_height,
        _MARGIN_MM,
        _MARGIN_MM,
        pitch_x_mm=cell_width,
        pitch_y_mm=cell_height,
        pad_mm=_PLAIN_PAD_MM,
        precut=False,
    )


def paper_size(paper: str) -> tuple[float, float]:
    """Width and height of a paper in millimetres.

    Raises:
        LabelError: no such paper.
    """
    if paper not in PAPERS:
        raise LabelError(f"no paper {paper!r}: there is {', '.join(sorted(PAPERS))}")
    return PAPERS[paper]


@dataclass(frozen=True, slots=True)
class _GridFile:
    """The keys of a grid file; lengths in millimetres."""

    page_width_mm: float
    page_height_mm: float
    columns: int
    rows: int
    label_width_mm: float
    label_height_mm: float
    left_mm: float
    top_mm: float
    pitch_x_mm: float
    pitch_y_mm: float
    pad_mm: float


_KEYS: Final = ("page", *(field.name for field in fields(_GridFile)))


def read_grid(path: Path) -> Grid:
    """A grid of one's own out of a YAML file (docs/labels.md, "The sheet").

    Args:
        path: a mapping with ``columns``, ``rows``, ``label_width_mm``, ``label_height_mm``, and if wanted ``page``
            (``a4``, ``letter``; or ``page_width_mm`` and ``page_height_mm``), ``pitch_x_mm`` and ``pitch_y_mm`` (the
            label's size), ``left_mm`` and ``top_mm`` (centred), ``pad_mm`` (1).

    Raises:
        LabelError: the file cannot be read, a key is unknown, missing or no sensible number, or the labels do not
            fit the page.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise LabelError(f"cannot read the grid {path}: {problem.strerror}; give a YAML file") from None
    except (UnicodeDecodeError, yaml.YAMLError) as problem:
        line = " ".join(str(problem).split())
        raise LabelError(f"the grid {path} is no YAML file: {line}") from None
    return grid_from(given, str(path))


def grid_from(given: Any, name: str) -> Grid:
    """A grid out of the keys that :func:`read_grid` describes.

    Args:
        given: a mapping.
        name: names the grid in messages.

    Raises:
        LabelError: as :func:`read_grid` says.
    """
    if not isinstance(given, Mapping):
        raise LabelError(f"the grid {name} is no mapping: give columns, rows, label_width_mm and label_height_mm")
    for key in given:
        if key not in _KEYS:
            near = get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_KEYS)}"
            raise LabelError(f"the grid {name} has the unknown key {key!r}: {hint}")
    page_width, page_height = paper_size(str(given.get("page", "a4")))
    columns, rows = (int(_number(given, name, key, None, at_least=1, whole=True)) for key in ("columns", "rows"))
    if columns * rows > _CELLS_MAX:
        raise LabelError(f"the grid {name} has {columns * rows} labels on a page: at most {_CELLS_MAX}")
    page_width = _number(given, name, "page_width_mm", page_width)
    page_height = _number(given, name, "page_height_mm", page_height)
    width = _number(given, name, "label_width_mm", None)
    height = _number(given, name, "label_height_mm", None)
    pitch_x = _number(given, name, "pitch_x_mm", width)
    pitch_y = _number(given, name, "pitch_y_mm", height)
    grid = Grid(
        page_width,
        page_height,
        columns,
        rows,
        width,
        height,
        _number(given, name, "left_mm", max(0.0, (page_width - (columns - 1) * pitch_x - width) / 2), at_least=0),
        _number(given, name, "top_mm", max(0.0, (page_height - (rows - 1) * pitch_y - height) / 2), at_least=0),
        pitch_x_mm=pitch_x,
        pitch_y_mm=pitch_y,
        pad_mm=_number(given, name, "pad_mm", _PAD_MM, at_least=0),
    )
    grid.require_on_page(f"the grid {name}")
    return grid


def _number(
    given: Mapping[str, Any], name: str, key: str, default: float | None, *, at_least: float = 0.1, whole: bool = False
) -> float:
    value = given.get(key, default)
    if value is None:
        raise LabelError(f"the grid {name} lacks {key}: add it, {'a number' if whole else 'in millimetres'}")
    kind = "a whole number" if whole else "a number of millimetres"
    wrong = isinstance(value, bool) or not isinstance(value, int if whole else (int, float))
    if wrong or not math.isfinite(value) or not at_least <= value <= _CELLS_MAX:
        raise LabelError(f"the grid {name}: {key} is {value!r}: give {kind}, at least {at_least:g}")
    return float(value)
