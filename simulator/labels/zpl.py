"""Labels for Zebra printers: ZPL II, each label as one picture that zebrafy writes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import pypdfium2
from PIL import Image
from reportlab.pdfgen.canvas import Canvas
from zebrafy.zebrafy_image import ZebrafyImage

from simulator.labels.errors import LabelError
from simulator.labels.grid import Grid
from simulator.labels.layout import lay_out
from simulator.labels.sheet import MM
from simulator.labels.symbol import Symbol, draw_pixels

RESOLUTIONS: Final = (203, 300, 600)
"""Dots per inch of Zebra's print heads."""
_MM_PER_INCH: Final = 25.4


def require_zebra(dpi: int) -> None:
    """Refuse a resolution that no Zebra printer has.

    Raises:
        LabelError: with what would do.
    """
    if dpi not in RESOLUTIONS:
        raise LabelError(f"Zebra printers have {', '.join(map(str, RESOLUTIONS))} dpi, not {dpi}: give one as --dpi")


def draw_zpl(identifier: str, lines: Sequence[str], symbol: Symbol, *, grid: Grid) -> str:
    """One label as a ZPL format, ``^XA`` to ``^XZ``.

    Args:
        identifier: of the device, for a comment.
        lines: the text beside the code.
        symbol: the code; its dots are those of the printer.
        grid: of which the label is one.

    Raises:
        LabelError: the text does not fit.
    """
    layout = lay_out(grid, symbol.edge_mm, lines)
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=(grid.label_width_mm * MM, grid.label_height_mm * MM))
    for text in layout.texts:
        canvas.setFont(text.font, text.size_mm * MM)
        canvas.drawString(text.left_mm * MM, (grid.label_height_mm - text.baseline_mm) * MM, text.text)
    canvas.showPage()
    canvas.save()
    drawn = pypdfium2.PdfDocument(buffer.getvalue())[0].render(scale=symbol.dpi / 72, grayscale=True).to_pil()
    code = Image.fromarray(draw_pixels(symbol.modules, symbol.dots_per_module))
    dots_per_mm = symbol.dpi / _MM_PER_INCH
    drawn.paste(code, (round(layout.code_left_mm * dots_per_mm), round(layout.code_top_mm * dots_per_mm)))
    picture = ZebrafyImage(drawn.convert("L"), format="Z64", dither=False, complete_zpl=False).to_zpl()
    # A comment ends at the next command: nothing of an identifier may look like one.
    comment = quote(identifier, safe=" :/+=,@()").replace("~", "%7E")
    size = f"^PW{drawn.width}^LL{drawn.height}"
    return f"^XA\n^FX {comment}^FS\n{size}^LH0,0^LS0^LT0\n{picture}\n^PQ1\n^XZ\n"
