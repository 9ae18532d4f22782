"""What the QR codes of a photograph say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import zxingcpp

from agent.errors import InvalidQr
from simulator.console.labels.photograph import Photograph, open_photograph
from simulator.labels.finding import CodeSearch, Corners, FoundCode
from simulator.wire.qr import parse_label

_CODES_MAX: Final = 50
_OTHERS: Final = ("DataMatrix", "Aztec", "PDF417", "MaxiCode", "MicroQRCode", "RMQRCode", "EAN13", "EAN8", "Code128")
"""Symbols that are named where there is no QR code; the weaker ones are found in any picture of a fence."""


def decode_picture(data: bytes, *, quick: bool, patience_s: float) -> dict[str, Any]:
    """What a picture's QR codes say.

    Args:
        data: the picture's bytes.
        quick: one look, for the frames of a camera; else patient looks follow while nothing, or not all, is read.
        patience_s: no further look begins after so many seconds.

    Raises:
        PictureError: it is no picture, or too large.
    """
    until = time.monotonic() + patience_s
    picture = open_photograph(data)
    search = CodeSearch(picture.pixels)
    search.look()
    if not quick:
        search.search(lambda: bool(search.found and not search.unread) or time.monotonic() > until)
    codes = [_show_code(code, picture) for code in search.in_reading_order()[:_CODES_MAX]]
    unread = [_places(corners, picture) for corners in search.unread]
    return {
        "picture": {"format": picture.kind, "width": picture.width, "height": picture.height},
        "codes": codes,
        "unread": unread,
        "advice": _advice(search.found, unread, picture, quick=quick),
    }


def _show_code(code: FoundCode, picture: Photograph) -> dict[str, Any]:
    return {
        **_as_label(code.data),
        "size_bytes": len(code.data),
        "corners": _places(code.corners, picture),
    }


def _as_label(data: bytes) -> dict[str, Any]:
    """What a code's bytes say, and as a label; ``problem`` says why they are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        problem = {"reason": "not_utf8", "message": "the code holds bytes that are no UTF-8 text"}
        return {"text": None, "label": None, "problem": problem}
    try:
        label = parse_label(text)
    except InvalidQr as exc:
        return {"text": text, "label": None, "problem": {"reason": exc.reason, "message": str(exc)}}
    shown = {
        "product_id": label.product_id,
        "device_identifier": label.device_identifier,
        "profile": label.profile,
        "host": label.host or None,
        "signed": label.sig is not None,
    }
    return {"text": text, "label": shown, "problem": None}


def _places(corners: Corners, picture: Photograph) -> list[list[int]]:
    return [[round(x * picture.shrunk), round(y * picture.shrunk)] for x, y in corners]


def _advice(found: Sequence[FoundCode], unread: Sequence[object], picture: Photograph, *, quick: bool) -> str | None:
    """What to do about a picture without a code, or with one that is not read; None when all is well."""
    if unread:
        count = f"{len(unread)} code(s) were seen and not read"
        return f"{count}: take the picture nearer and sharper, without glare, with white around the code."
    if found or quick:
        return None
    formats = zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.__members__[name] for name in _OTHERS])
    others = sorted({code.format.name for code in zxingcpp.read_barcodes(picture.pixels, formats=formats)})
    if others:
        return f"There is no QR code in this picture, but {', '.join(others)}: device labels are QR codes."
    return (
        "There is no QR code in this picture: hold the label so that it fills half of it, in good light, and try again."
    )
