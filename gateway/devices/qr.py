"""A QR symbol on a terminal and as a picture, for what a device reads once: its address and its token."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

import qrcode

Modules = Sequence[Sequence[bool]]
"""Rows of a symbol with its quiet zone; true is dark."""

_QUIET_MODULES: Final = 4
_DOTS: Final = 8
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
# Black on bright white, whatever the terminal's own colours are: scanners dislike a light symbol on dark ground.
_BEGIN: Final = "\x1b[30;107m"
_END: Final = "\x1b[0m"
# (upper module is dark, lower module is dark)
_ON_WHITE: Final = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}
_ON_BLACK: Final = {(upper, lower): _ON_WHITE[not upper, not lower] for upper, lower in _ON_WHITE}


def make_symbol(text: str) -> Modules:
    """The symbol of a text, with its quiet zone."""
    symbol = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M, border=_QUIET_MODULES)
    symbol.add_data(text.encode())
    symbol.make(fit=True)
    return [[bool(module) for module in row] for row in symbol.get_matrix()]


def draw_text(symbol: Modules, *, colours: bool) -> str:
    """Two rows of modules in each line.

    Args:
        symbol: see :func:`make_symbol`.
        colours: for a terminal. Without them the blocks are the light modules, for light text on dark ground.
    """
    blank = [False] * len(symbol[0])
    rows = [*symbol, blank] if len(symbol) % 2 else list(symbol)
    blocks = _ON_WHITE if colours else _ON_BLACK
    lines = [
        "".join(blocks[upper, lower] for upper, lower in zip(rows[at], rows[at + 1], strict=True))
        for at in range(0, len(rows), 2)
    ]
    return "\n".join(f"{_BEGIN}{line}{_END}" if colours else line for line in lines)


def draw_png(symbol: Modules) -> bytes:
    """A 1-bit grey PNG, 8 pixels to a module (PNG specification, third edition)."""
    edge = len(symbol) * _DOTS
    lines = bytearray()
    for row in symbol:
        bits = "".join(("0" if module else "1") * _DOTS for module in row)
        # A module is 8 pixels wide, so a line is whole bytes; each begins with filter type 0.
        lines += (b"\0" + int(bits, 2).to_bytes(len(symbol), "big")) * _DOTS
    header = struct.pack(">IIBBBBB", edge, edge, 1, 0, 0, 0, 0)
    return b"".join(
        (_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(bytes(lines), 9)), _chunk(b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
