"""Any text as a QR code for a screen: the console's own address for a phone, a device's label."""

from __future__ import annotations

from simulator.labels.symbol import svg_of


def draw_text(text: str) -> bytes:
    """The QR code of a text, as SVG.

    Raises:
        LabelError: it is too long for one, or not ASCII.
    """
    return svg_of(text).encode()
