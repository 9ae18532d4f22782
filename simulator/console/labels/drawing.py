"""Any text as a QR code for a screen: the console's own address for a phone, a device's label."""

from __future__ import annotations

from simulator.labels.errors import LabelError
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.svg import draw_svg

_MODULE_MM = 1.0


def draw_text(text: str) -> bytes:
    """The QR code of a text, as SVG.

    Raises:
        LabelError: it is too long for one.
    """
    matrix = encode(text, Candidate(0, "M", None))
    if matrix is None:
        raise LabelError(f"{len(text.encode())} bytes of text are more than one QR code holds: shorten it")
    return draw_svg(matrix, module_mm=_MODULE_MM, title=text)
