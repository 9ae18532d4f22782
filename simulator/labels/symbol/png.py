"""A 1-bit PNG writer with the same bytes on every Python.

zlib's output differs between builds (zlib, zlib-ng, Pillow's own), so this module writes the deflate stream itself:
one block with the fixed Huffman codes (RFC 1951, 3.2.6) in which each pixel row that repeats the one above is a
back-reference. A label's modules are squares of many pixels, so that alone makes a file of about 2 KB.
"""

from __future__ import annotations

import re
import struct
import zlib
from functools import lru_cache
from typing import Final

from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_MATCH_MIN: Final = 3
_MATCH_MAX: Final = 258
_DISTANCE_MAX: Final = 32768
_INCH_M: Final = 0.0254
_END_OF_BLOCK: Final = 256
_RUNS: Final = re.compile(rb"(.)\1*", re.DOTALL)


def draw_png(matrix: Matrix, *, dots_per_module: int, dpi: int) -> bytes:
    """Draw a symbol with its quiet zone as a 1-bit grey PNG.

    Args:
        matrix: the modules.
        dots_per_module: edge of one module in pixels, at least 1.
        dpi: dots per inch, noted in the file (``pHYs``) so that it prints at its true size.

    Returns:
        The file: ``(modules + 8) * dots_per_module`` pixels square, black on white.
    """
    edge = matrix.modules_with_quiet_zone * dots_per_module
    header = struct.pack(">IIBBBBB", edge, edge, 1, 0, 0, 0, 0)
    dots_per_m = round(dpi / _INCH_M)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"pHYs", struct.pack(">IIB", dots_per_m, dots_per_m, 1)),
            _chunk(b"IDAT", _compress(_scanlines(matrix, dots_per_module))),
            _chunk(b"IEND", b""),
        )
    )


def _scanlines(matrix: Matrix, dots: int) -> list[tuple[bytes, int]]:
    """Pixel rows with their PNG filter byte, each with the number of times it comes."""
    edge = matrix.modules_with_quiet_zone * dots
    stride = (edge + 7) // 8
    pad = b"0" * (stride * 8 - edge)
    side = b"1" * (QUIET_MODULES * dots)
    light, dark = b"1" * dots, b"0" * dots

    def line(pixels: bytes) -> bytes:
        return b"\x00" + int(pixels + pad, 2).to_bytes(stride, "big")

    blank = line(b"1" * edge)
    rows = [line(side + row.replace(b"\0", light).replace(b"\1", dark) + side) for row in matrix.rows]
    return [(blank, QUIET_MODULES * dots), *((row, dots) for row in rows), (blank, QUIET_MODULES * dots)]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _fixed_codes() -> tuple[str, ...]:
    """The bits of each literal or length symbol (RFC 1951, 3.2.6), as they follow in the stream."""
    blocks = ((0x030, 8, 144), (0x190, 9, 112), (0x000, 7, 24), (0x0C0, 8, 8))
    return tuple(format(first + index, f"0{bits}b") for first, bits, size in blocks for index in range(size))


def _ranges(symbols: int, groups: int, first: int, start: int) -> list[tuple[int, int, int]]:
    """Symbol, lowest value and extra bits of each length or distance code (RFC 1951, 3.2.5)."""
    table = []
    value = start
    for symbol in range(symbols):
        extra = max(0, symbol // groups - 1)
        table.append((first + symbol, value, extra))
        value += 1 << extra
    return table


_CODES: Final = _fixed_codes()
_LENGTHS: Final = [*_ranges(28, 4, 257, _MATCH_MIN), (285, _MATCH_MAX, 0)]
_DISTANCES: Final = _ranges(30, 2, 0, 1)


def _range_of(value: int, table: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Symbol, offset within it, and the number of bits of that offset."""
    symbol, low, extra = next(entry for entry in reversed(table) if entry[1] <= value)
    return symbol, value - low, extra


def _number(value: int, bits: int) -> str:
    """A number's bits as they follow in the stream: the lowest first."""
    return format(value, f"0{bits}b")[::-1] if bits else ""


def _match(length: int, distance: int) -> str:
    length_symbol, length_offset, length_bits = _range_of(length, _LENGTHS)
    distance_symbol, distance_offset, distance_bits = _range_of(distance, _DISTANCES)
    return (
        _CODES[length_symbol]
        + _number(length_offset, length_bits)
        + format(distance_symbol, "05b")
        + _number(distance_offset, distance_bits)
    )


def _match_lengths(total: int) -> list[int]:
    """``total`` bytes as matches of 3 to 258, none left over; empty when ``total`` is below 3."""
    if total < _MATCH_MIN:
        return []
    whole, rest = divmod(total, _MATCH_MAX)
    if 0 < rest < _MATCH_MIN:  # take from a neighbour what the last match lacks
        return [*[_MATCH_MAX] * (whole - 1), _MATCH_MAX - _MATCH_MIN, rest + _MATCH_MIN]
    return [*[_MATCH_MAX] * whole, *([rest] if rest else [])]


@lru_cache(maxsize=4096)
def _run(run: bytes) -> str:
    """A run of equal bytes: one literal and matches at distance 1, or literals when it is too short for a match."""
    literal = _CODES[run[0]]
    lengths = _match_lengths(len(run) - 1)
    return literal + "".join(_match(length, 1) for length in lengths) if lengths else literal * len(run)


@lru_cache(maxsize=4096)
def _row(row: bytes) -> str:
    return "".join([_run(run[0]) for run in _RUNS.finditer(row)])


@lru_cache(maxsize=64)
def _repeated(size: int, times: int) -> str:
    """``times`` copies of the row of ``size`` bytes that was just written; empty when deflate cannot reach back."""
    return "".join(_match(length, size) for length in _match_lengths(size * times)) if size <= _DISTANCE_MAX else ""


def _compress(rows: list[tuple[bytes, int]]) -> bytes:
    """A zlib stream (RFC 1950) of rows and how often each comes."""
    stream = ["110"]  # last block, fixed Huffman codes
    checksum = 1
    for row, times in rows:
        bits = _row(row)
        stream.append(bits)
        stream.append(_repeated(len(row), times - 1) or bits * (times - 1))
        checksum = zlib.adler32(row * times, checksum)
    stream.append(_CODES[_END_OF_BLOCK])
    bits = "".join(stream)
    packed = int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little")
    return b"\x78\x01" + packed + struct.pack(">I", checksum)
