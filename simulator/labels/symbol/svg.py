"""A symbol as SVG at its true size: one path, one unit per module."""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import escape

from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix

_NOT_XML: Final = re.compile("[^\\t\\n\\r\\u0020-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def draw_svg(matrix: Matrix, *, module_mm: float, title: str) -> bytes:
    """Draw a symbol with its quiet zone as an SVG file.

    Args:
        matrix: the modules.
        module_mm: edge of one module in millimetres.
        title: what a viewer shows and a screen reader says; characters that XML cannot hold become U+FFFD.
    """
    edge = matrix.modules_with_quiet_zone
    path = "".join(f"M{x + QUIET_MODULES} {y + QUIET_MODULES}h{run}v1h-{run}z" for x, y, run in matrix.dark_runs())
    edge_mm = f"{edge * module_mm:.4f}mm"
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{edge_mm}" height="{edge_mm}" '
        f'viewBox="0 0 {edge} {edge}" shape-rendering="crispEdges" role="img">\n'
        f"<title>{escape(_xml_text(title))}</title>\n"
        f'<rect width="{edge}" height="{edge}" fill="#fff"/>\n'
        f'<path d="{path}" fill="#000"/>\n'
        "</svg>\n"
    )
    return text.encode()


def _xml_text(text: str) -> str:
    """The text without what XML 1.0 forbids (section 2.2, "Char")."""
    return _NOT_XML.sub("\ufffd", text)
