"""Pictures of labels for tests, drawn by the library qrcode, which makes no label of plain ASCII text here."""

from __future__ import annotations

import io
from collections.abc import Sequence

import qrcode
from PIL import Image

_ROW = 3
_GAP = 60


def draw_code(text: str, module_px: int) -> Image.Image:
    """A code with its quiet zone of four modules, grey."""
    code = qrcode.QRCode(border=4, box_size=module_px)
    code.add_data(text)
    return code.make_image().get_image().convert("L")


def photograph(texts: Sequence[str], module_px: int = 6) -> Image.Image:
    """Codes in rows of three on a grey table."""
    codes = [draw_code(text, module_px) for text in texts]
    edge = max(code.width for code in codes) + _GAP
    rows = -(-len(codes) // _ROW)
    table = Image.new("L", (edge * min(_ROW, len(codes)) + _GAP, edge * rows + _GAP), 170)
    for place, code in enumerate(codes):
        table.paste(code, (_GAP + place % _ROW * edge, _GAP + place // _ROW * edge))
    return table


def as_bytes(picture: Image.Image, kind: str) -> bytes:
    """A picture as a file of this format."""
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return buffer.getvalue()
