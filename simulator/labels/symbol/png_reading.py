"""Read a drawn PNG file back into grey pixels, without any of the code that wrote it.

What a decoder is shown comes out of the file's own bytes: chunks with their checksums, the deflate stream through
zlib, every pixel. Pillow reads the same files (``pictures.py``) but takes several times as long for each.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np

from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import GrayImage

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_ONE_BIT_GRAY: Final = bytes((1, 0, 0, 0, 0))


def read_drawing(png: bytes) -> GrayImage:
    """The pixels of a 1-bit grey PNG file.

    Args:
        png: a file as :func:`simulator.labels.symbol.png.draw_png` writes it: no interlacing, no row filter.

    Raises:
        LabelError: it is anything else, or a checksum does not hold.
    """
    try:
        header, packed = _chunks(png)
        width, height = struct.unpack(">II", header[:8])
        rows = zlib.decompress(packed)
    except (ValueError, KeyError, struct.error, zlib.error) as problem:
        raise LabelError(f"the drawn picture is damaged: {problem}") from None
    stride = (width + 7) // 8 + 1
    if header[8:] != _ONE_BIT_GRAY or len(rows) != height * stride or any(rows[::stride]):
        raise LabelError("the drawn picture is no plain 1-bit PNG")
    packed_rows = np.frombuffer(rows, np.uint8).reshape(height, stride)[:, 1:]
    gray = np.unpackbits(packed_rows, axis=1, count=width) * np.uint8(255)
    return GrayImage(width, height, gray.tobytes())


def _chunks(png: bytes) -> tuple[bytes, bytes]:
    """The header and the packed pixels.

    Raises:
        ValueError: no PNG, or a checksum that does not hold.
        KeyError: the header is missing.
    """
    if not png.startswith(_SIGNATURE):
        raise ValueError("no PNG signature")
    found: dict[bytes, bytes] = {}
    at = len(_SIGNATURE)
    while at < len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        data = png[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack_from(">I", png, at + 8 + size)
        if zlib.crc32(kind + data) != checksum:
            raise ValueError(f"the checksum of {kind.decode('latin-1')} does not hold")
        found[kind] = found.get(kind, b"") + data
        at += 12 + size
    return found[b"IHDR"], found.get(b"IDAT", b"")
