"""One PDF of labels at true size: millimetres on paper, each module a vector rectangle."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from simulator.labels.errors import LabelError
from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix

PAPERS: Final = MappingProxyType({"a4": (210.0, 297.0), "letter": (215.9, 279.4)})
"""Width and height in millimetres by paper name."""

_MM: Final = 72.0 / 25.4
_MARGIN_MM: Final = 10.0
_FOOT_MM: Final = 14.0
_PAD_MM: Final = 2.0
_TEXT_MM: Final = 28.0
_RULER_MM: Final = 100
_INK: Final = 0.0
_SOFT: Final = 0.45
_HAIR: Final = 0.7
_LEADING: Final = 1.25


@dataclass(frozen=True, slots=True)
class SheetLabel:
    """One label as the sheet shows it.

    Attributes:
        identifier: the large line beside the code.
        product: the small lines under it.
        matrix: the code.
        module_mm: edge of a module on paper.
    """

    identifier: str
    product: str
    matrix: Matrix
    module_mm: float

    @property
    def edge_mm(self) -> float:
        """Edge of the code with its quiet zone."""
        return self.matrix.modules_with_quiet_zone * self.module_mm


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
    """

    page_width_mm: float
    page_height_mm: float
    columns: int
    rows: int
    cell_width_mm: float
    cell_height_mm: float
    left_mm: float
    top_mm: float

    @property
    def per_page(self) -> int:
        """Labels on a full page."""
        return self.columns * self.rows

    def cell(self, index: int) -> tuple[int, float, float]:
        """Page from 0, and the cell's left and top in millimetres, of the label with this index."""
        page, place = divmod(index, self.per_page)
        row, column = divmod(place, self.columns)
        return page, self.left_mm + column * self.cell_width_mm, self.top_mm + row * self.cell_height_mm


def fit_grid(paper: str, code_mm: float) -> Grid:
    """The grid of a paper for codes of this edge: as many as fit, centred across.

    Raises:
        LabelError: no such paper, or the code is larger than the paper's printable part.
    """
    if paper not in PAPERS:
        raise LabelError(f"no paper {paper!r}: there is {', '.join(sorted(PAPERS))}")
    width, height = PAPERS[paper]
    usable_width, usable_height = width - 2 * _MARGIN_MM, height - 2 * _MARGIN_MM - _FOOT_MM
    cell_height = code_mm + 2 * _PAD_MM
    columns = max(1, int(usable_width // (code_mm + 2 * _PAD_MM + _TEXT_MM)))
    rows = int((usable_height + 1e-6) // cell_height)
    cell_width = usable_width / columns
    if rows < 1 or code_mm + 2 * _PAD_MM + _TEXT_MM / 2 > cell_width:
        largest = min(usable_height, usable_width - _TEXT_MM / 2) - 2 * _PAD_MM
        raise LabelError(f"a code of {code_mm:g} mm does not fit on {paper}: at most --size-mm {int(largest)}")
    return Grid(width, height, columns, rows, cell_width, cell_height, _MARGIN_MM, _MARGIN_MM)


def draw_sheet(labels: Sequence[SheetLabel], *, grid: Grid, title: str) -> bytes:
    """Draw labels onto as many pages as they need.

    The file holds no date, no random id and no compressed stream, so equal input gives equal bytes.

    Args:
        labels: in the order in which they fill the grid, row by row.
        grid: where they stand; each code must fit its cell.
        title: the document's title, also printed at the foot of each page.
    """
    buffer = io.BytesIO()
    page_size = (grid.page_width_mm * _MM, grid.page_height_mm * _MM)
    canvas = Canvas(buffer, pagesize=page_size, invariant=1, pageCompression=0)
    canvas.setTitle(printable(title))
    canvas.setCreator("fleet-simulator labels make")
    # Viewers scale to the paper unless the document asks them not to.
    canvas.setViewerPreference("PrintScaling", "None")
    pages = -(-len(labels) // grid.per_page)
    for page in range(pages):
        _draw_foot(canvas, grid, title, page + 1, pages)
        _draw_cut_marks(canvas, grid)
        for index in range(page * grid.per_page, min(len(labels), (page + 1) * grid.per_page)):
            _, left, top = grid.cell(index)
            _draw_label(canvas, grid, labels[index], left, top)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def printable(text: str) -> str:
    r"""The text in characters that the PDF's built-in fonts have; every other one as ``\uXXXX``."""
    return "".join(char if _in_built_in_fonts(char) else _escape(char) for char in text)


def _in_built_in_fonts(char: str) -> bool:
    if not char.isprintable():
        return False
    try:
        char.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"  # noqa: PLR2004 - the BMP's end


def _draw_label(canvas: Canvas, grid: Grid, label: SheetLabel, left_mm: float, top_mm: float) -> None:
    code_top_mm = top_mm + (grid.cell_height_mm - label.edge_mm) / 2
    _draw_code(canvas, grid, label, left_mm + _PAD_MM, code_top_mm)
    text_left = (left_mm + _PAD_MM + label.edge_mm + _PAD_MM / 2) * _MM
    room = (left_mm + grid.cell_width_mm - _PAD_MM) * _MM - text_left
    lines = [
        *((line, size, True) for line, size in _fit(label.identifier, "Helvetica-Bold", 10.0, room)),
        *((line, size, False) for line, size in _fit(label.product, "Helvetica", 6.0, room)),
    ]
    height = sum(size * _LEADING for _, size, _ in lines)
    y = (grid.page_height_mm - top_mm - grid.cell_height_mm / 2) * _MM + height / 2
    for line, size, bold in lines:
        y -= size * _LEADING
        canvas.setFillGray(_INK if bold else _SOFT)
        canvas.setFont("Helvetica-Bold" if bold else "Helvetica", size)
        canvas.drawString(text_left, y + size * 0.3, line)


def _draw_code(canvas: Canvas, grid: Grid, label: SheetLabel, left_mm: float, top_mm: float) -> None:
    """One path for all modules of a code: a renderer that smooths edges shows no seams between rows."""
    module = label.module_mm * _MM
    canvas.saveState()
    canvas.setFillGray(_INK)
    canvas.transform(module, 0, 0, -module, left_mm * _MM, (grid.page_height_mm - top_mm) * _MM)
    path = canvas.beginPath()
    for x, y, run in label.matrix.dark_runs():
        path.rect(x + QUIET_MODULES, y + QUIET_MODULES, run, 1)
    canvas.drawPath(path, stroke=0, fill=1)
    canvas.restoreState()


def _fit(text: str, font: str, size: float, room: float) -> list[tuple[str, float]]:
    """Lines and their font size: one line down to three quarters of the size, else up to three lines."""
    for smaller in (size, size * 0.9, size * 0.8, size * 0.75):
        if stringWidth(printable(text), font, smaller) <= room:
            return [(printable(text), smaller)]
    return [(line, size * 0.75) for line in _wrap(text, font, size * 0.75, room, lines_max=3)]


def _wrap(text: str, font: str, size: float, room: float, *, lines_max: int) -> list[str]:
    """Lines of at most ``room`` points, broken anywhere (identifiers have no words); the last ends in an ellipsis."""
    lines = [""]
    for piece in map(printable, text):  # an escape is never broken
        if lines[-1] and stringWidth(lines[-1] + piece, font, size) > room:
            if len(lines) == lines_max:
                lines[-1] = lines[-1][:-1] + "\u2026"
                break
            lines.append("")
        lines[-1] += piece
    return lines


def _draw_cut_marks(canvas: Canvas, grid: Grid) -> None:
    """A hairline cross at each corner of each label, reaching 1.5 mm; it stays out of every quiet zone."""
    canvas.setStrokeGray(_HAIR)
    canvas.setLineWidth(0.2)
    reach = 1.5
    for column in range(grid.columns + 1):
        for row in range(grid.rows + 1):
            x = grid.left_mm + column * grid.cell_width_mm
            y = grid.page_height_mm - grid.top_mm - row * grid.cell_height_mm
            canvas.line((x - reach) * _MM, y * _MM, (x + reach) * _MM, y * _MM)
            canvas.line(x * _MM, (y - reach) * _MM, x * _MM, (y + reach) * _MM)


def _draw_foot(canvas: Canvas, grid: Grid, title: str, page: int, pages: int) -> None:
    """A ruler to check the print scale with, and what the page is."""
    base_mm = _MARGIN_MM
    canvas.setStrokeGray(_INK)
    canvas.setFillGray(_SOFT)
    canvas.setLineWidth(0.3)
    canvas.line(grid.left_mm * _MM, base_mm * _MM, (grid.left_mm + _RULER_MM) * _MM, base_mm * _MM)
    canvas.setFont("Helvetica", 5)
    for mm in range(_RULER_MM + 1):
        tick_mm = 3.0 if mm % 10 == 0 else 2.2 if mm % 5 == 0 else 1.4
        x = (grid.left_mm + mm) * _MM
        canvas.line(x, base_mm * _MM, x, (base_mm + tick_mm) * _MM)
        if mm % 10 == 0:
            canvas.drawCentredString(x, (base_mm - 2.4) * _MM, str(mm))
    text_left = (grid.left_mm + _RULER_MM + 6) * _MM
    room = (grid.page_width_mm - _MARGIN_MM) * _MM - text_left
    canvas.setFont("Helvetica", 6)
    notes = (
        f"{title}, page {page} of {pages}",
        "Print at 100 %, not scaled to the page: the ruler measures 100 mm.",
    )
    for line, note in enumerate(notes):
        canvas.drawString(
            text_left, (base_mm + 1.6 - line * 2.8) * _MM, _wrap(note, "Helvetica", 6, room, lines_max=1)[0]
        )
