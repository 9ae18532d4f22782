"""One PDF of labels at true size: millimetres on paper, each module a vector rectangle."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from simulator.labels.printing.grid import FOOT_MM, Grid
from simulator.labels.printing.layout import Layout, PlacedText, Room, lay_out
from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix

_MM: Final = 72.0 / 25.4
_FOOT_TEXT_MM: Final = 2.1
_INK: Final = 0.0
_SOFT: Final = 0.45
_HAIR: Final = 0.7
_EDGE_MM: Final = 4.5


@dataclass(frozen=True, slots=True)
class SheetLabel:
    """One label as the sheet shows it.

    Attributes:
        lines: the text; the first line is set large and bold.
        matrix: the code.
        module_mm: edge of a module on paper.
    """

    lines: tuple[str, ...]
    matrix: Matrix
    module_mm: float

    @property
    def edge_mm(self) -> float:
        """Edge of the code with its quiet zone."""
        return self.matrix.modules_with_quiet_zone * self.module_mm


def measure_pdf(text: str, bold: bool, size_mm: float) -> float:
    """The width in millimetres of a text in the PDF's fonts."""
    return float(stringWidth(text, _font(bold=bold), size_mm))


def sheet_layout(grid: Grid, edge_mm: float, lines: Sequence[str]) -> Layout:
    """Where the code and the text of one label of a sheet stand, from the label's left and top edge.

    Raises:
        LabelError: they do not fit.
    """
    room = Room(grid.cell_width_mm, grid.cell_height_mm, grid.pad_mm)
    return lay_out(room, edge_mm, [printable(line) for line in lines], measure_pdf)


def draw_sheet(labels: Sequence[SheetLabel], *, grid: Grid, title: str) -> bytes:
    """Draw labels onto as many pages as they need.

    The file holds no date, no random id and no compressed stream, so equal input gives equal bytes.

    Args:
        labels: in the order in which they fill the grid, row by row.
        grid: where they stand; each code must fit its cell. Labels that are not cut already get cut marks.
        title: the document's title, also printed at the foot of each page that has room.

    Raises:
        LabelError: a label does not hold its code or its text.
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
        _draw_foot(canvas, grid, f"{printable(title)}, page {page + 1} of {pages}. Print at 100 %.")
        if not grid.precut:
            _draw_cut_marks(canvas, grid)
        first = page * grid.per_page
        for place, label in enumerate(labels[first : first + grid.per_page]):
            _, left, top = grid.cell(place)
            _draw_label(canvas, grid, label, left, top)
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
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _font(*, bold: bool) -> str:
    return "Helvetica-Bold" if bold else "Helvetica"


def _draw_label(canvas: Canvas, grid: Grid, label: SheetLabel, left_mm: float, top_mm: float) -> None:
    layout = sheet_layout(grid, label.edge_mm, label.lines)
    _draw_code(canvas, grid, label, left_mm + layout.code_left_mm, top_mm + layout.code_top_mm)
    for text in layout.texts:
        _draw_text(canvas, grid, text, left_mm, top_mm)


def _draw_text(canvas: Canvas, grid: Grid, text: PlacedText, left_mm: float, top_mm: float) -> None:
    canvas.setFillGray(_INK if text.bold else _SOFT)
    canvas.setFont(_font(bold=text.bold), text.size_mm * _MM)
    y_mm = grid.page_height_mm - top_mm - text.baseline_mm
    canvas.drawString((left_mm + text.left_mm) * _MM, y_mm * _MM, text.text)


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


def _draw_cut_marks(canvas: Canvas, grid: Grid) -> None:
    """Hairlines that reach 1.5 mm from each corner, so that they stay out of every quiet zone."""
    canvas.setStrokeGray(_HAIR)
    canvas.setLineWidth(0.2)
    for x in _edges(grid.left_mm, grid.columns, grid.pitch_x_mm, grid.cell_width_mm):
        for down in _edges(grid.top_mm, grid.rows, grid.pitch_y_mm, grid.cell_height_mm):
            _draw_cross(canvas, x, grid.page_height_mm - down)


def _draw_cross(canvas: Canvas, x: float, y: float) -> None:
    reach = 1.5
    canvas.line((x - reach) * _MM, y * _MM, (x + reach) * _MM, y * _MM)
    canvas.line(x * _MM, (y - reach) * _MM, x * _MM, (y + reach) * _MM)


def _edges(start: float, count: int, pitch: float, size: float) -> list[float]:
    """Where labels begin and end along one direction; an edge that two labels share comes once."""
    return sorted({round(start + index * pitch + end, 4) for index in range(count) for end in (0.0, size)})


def _draw_foot(canvas: Canvas, grid: Grid, text: str) -> None:
    """One line below the last row; a sheet without room for it has none."""
    if grid.foot_mm < FOOT_MM - 1e-6:
        return
    left_mm = max(grid.left_mm, _EDGE_MM)
    room_mm = grid.page_width_mm - 2 * left_mm
    size_mm = min(_FOOT_TEXT_MM, _FOOT_TEXT_MM * room_mm / measure_pdf(text, False, _FOOT_TEXT_MM))
    canvas.setFillGray(_SOFT)
    canvas.setFont("Helvetica", size_mm * _MM)
    canvas.drawString(left_mm * _MM, min(10.0, grid.foot_mm - _EDGE_MM) * _MM, text)
