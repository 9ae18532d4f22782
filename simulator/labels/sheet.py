"""One PDF of labels at true size: millimetres on paper, each module a vector rectangle."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from simulator.labels.grid import Grid
from simulator.labels.layout import PlacedText, lay_out, printable
from simulator.labels.symbol import Symbol, dark_runs

MM: Final = 72.0 / 25.4
"""Points of a PDF for a millimetre."""
_FOOT_TEXT_MM: Final = 2.1
_FOOT_MM: Final = 10.0
_EDGE_MM: Final = 4.5
_MARK_MM: Final = 1.5
_BLACK, _GRAY, _PALE = 0.0, 0.45, 0.7

PrintedLabel = tuple[Sequence[str], Symbol]
"""The lines of text and the code of one label."""


def draw_sheet(labels: Sequence[PrintedLabel], *, grid: Grid, title: str) -> bytes:
    """Draw labels onto as many pages as they need, row by row; equal input gives equal bytes.

    Args:
        labels: in the order in which they fill the grid.
        grid: where they stand.
        title: the document's title, also printed at the foot of each page that has room.

    Raises:
        LabelError: a label does not hold its code or its text.
    """
    buffer = io.BytesIO()
    size = (grid.page_width_mm * MM, grid.page_height_mm * MM)
    canvas = Canvas(buffer, pagesize=size, invariant=1, pageCompression=1)
    canvas.setTitle(printable(title))
    canvas.setCreator("fleet-simulator labels make")
    # Viewers scale to the paper unless the document asks them not to.
    canvas.setViewerPreference("PrintScaling", "None")
    pages = -(-len(labels) // grid.per_page)
    for page in range(pages):
        _draw_foot(canvas, grid, f"{printable(title)}, page {page + 1} of {pages}. Print at 100 %.")
        if grid.to_cut:
            _draw_cut_marks(canvas, grid)
        for place, (lines, symbol) in enumerate(labels[page * grid.per_page : (page + 1) * grid.per_page]):
            left, top = grid.cell(place)
            layout = lay_out(grid, symbol.edge_mm, lines)
            _draw_code(canvas, grid, symbol, left + layout.code_left_mm, top + layout.code_top_mm)
            for text in layout.texts:
                _draw_text(canvas, grid, text, left, top)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _draw_text(canvas: Canvas, grid: Grid, text: PlacedText, left_mm: float, top_mm: float) -> None:
    canvas.setFillGray(_BLACK)
    canvas.setFont(text.font, text.size_mm * MM)
    y_mm = grid.page_height_mm - top_mm - text.baseline_mm
    canvas.drawString((left_mm + text.left_mm) * MM, y_mm * MM, text.text)


def _draw_code(canvas: Canvas, grid: Grid, symbol: Symbol, left_mm: float, top_mm: float) -> None:
    """One path for all modules of a code: a renderer that smooths edges shows no seams between rows."""
    module = symbol.module_mm * MM
    canvas.saveState()
    canvas.setFillGray(_BLACK)
    canvas.transform(module, 0, 0, -module, left_mm * MM, (grid.page_height_mm - top_mm) * MM)
    path = canvas.beginPath()
    for x, y, length in dark_runs(symbol.modules):
        path.rect(x, y, length, 1)
    canvas.drawPath(path, stroke=0, fill=1)
    canvas.restoreState()


def _draw_cut_marks(canvas: Canvas, grid: Grid) -> None:
    """Hairlines that reach 1.5 mm from each corner, so that they stay out of every quiet zone."""
    canvas.setStrokeGray(_PALE)
    canvas.setLineWidth(0.2)
    for column in range(grid.columns + 1):
        x = grid.left_mm + column * grid.pitch_x_mm
        for row in range(grid.rows + 1):
            y = grid.page_height_mm - grid.top_mm - row * grid.pitch_y_mm
            canvas.line((x - _MARK_MM) * MM, y * MM, (x + _MARK_MM) * MM, y * MM)
            canvas.line(x * MM, (y - _MARK_MM) * MM, x * MM, (y + _MARK_MM) * MM)


def _draw_foot(canvas: Canvas, grid: Grid, text: str) -> None:
    """One line below the last row; a sheet without room for it has none."""
    free_mm = grid.page_height_mm - grid.lower_edge_mm
    if free_mm < _FOOT_MM - 1e-6:
        return
    left_mm = max(grid.left_mm, _EDGE_MM)
    room_mm = grid.page_width_mm - 2 * left_mm
    size_mm = min(_FOOT_TEXT_MM, _FOOT_TEXT_MM * room_mm / stringWidth(text, "Helvetica", _FOOT_TEXT_MM))
    canvas.setFillGray(_GRAY)
    canvas.setFont("Helvetica", size_mm * MM)
    canvas.drawString(left_mm * MM, min(_FOOT_MM, free_mm - _EDGE_MM) * MM, text)
