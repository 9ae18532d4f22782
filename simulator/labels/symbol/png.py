"""A 1-bit PNG writer with the same bytes on every Python.

zlib's output differs between builds (zlib, zlib-ng, Pillow's own), so this module writes the deflate stream itself:
one block with the fixed Huffman codes (RFC 1951, 3.2.6) in which each pixel row that repeats the one above is a
back-reference. A label's modules are squares of many pixels, so that alone makes a file of about 2 KB.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_MATCH_MIN: Final = 3
_MATCH_MAX: Final = 258
_DISTANCE_MAX: Final = 32768
_INCH_M: Final = 0.0254
_END_OF_BLOCK: Final = 256


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
    pad = "0" * (stride * 8 - edge)
    side = "1" * (QUIET_MODULES * dots)
    light, dark = "1" * dots, "0" * dots

    def line(pixels: str) -> bytes:
        return b"\x00" + int(pixels + pad, 2).to_bytes(stride, "big")

    blank = line("1" * edge)
    rows = [line(side + "".join(dark if module else light for module in row) + side) for row in matrix.rows]
    return [(blank, QUIET_MODULES * dots), *((row, dots) for row in rows), (blank, QUIET_MODULES * dots)]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class _BitWriter:
    """Bits in deflate's order: the least significant bit of each byte first."""

    __slots__ = ("_count", "_value", "out")

    def __init__(self) -> None:
        self.out = bytearray()
        self._value = 0
        self._count = 0

    def put(self, value: int, count: int) -> None:
        self._value |= value << self._count
        self._count += count
        if self._count >= 64:  # noqa: PLR2004 - eight whole bytes at once
            self.out += (self._value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
            self._value >>= 64
            self._count -= 64

    def finish(self) -> bytes:
        self.out += self._value.to_bytes((self._count + 7) // 8, "little")
        return bytes(self.out)


def _reversed_bits(value: int, count: int) -> int:
    return int(format(value, f"0{count}b")[::-1], 2)


def _fixed_codes() -> tuple[tuple[int, int], ...]:
    """Code and length of each literal or length symbol (RFC 1951, 3.2.6), first bit lowest."""
    blocks = ((0x030, 8, 144), (0x190, 9, 112), (0x000, 7, 24), (0x0C0, 8, 8))
    return tuple((_reversed_bits(first + index, bits), bits) for first, bits, size in blocks for index in range(size))


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


def _put_match(bits: _BitWriter, length: int, distance: int) -> None:
    symbol, offset, extra = _range_of(length, _LENGTHS)
    bits.put(*_CODES[symbol])
    bits.put(offset, extra)
    symbol, offset, extra = _range_of(distance, _DISTANCES)
    bits.put(_reversed_bits(symbol, 5), 5)
    bits.put(offset, extra)


def _match_lengths(total: int) -> list[int]:
    """``total`` bytes as matches of 3 to 258, none left over; empty when ``total`` is below 3."""
    if total < _MATCH_MIN:
        return []
    whole, rest = divmod(total, _MATCH_MAX)
    if 0 < rest < _MATCH_MIN:  # take from a neighbour what the last match lacks
        return [*[_MATCH_MAX] * (whole - 1), _MATCH_MAX - _MATCH_MIN, rest + _MATCH_MIN]
    return [*[_MATCH_MAX] * whole, *([rest] if rest else [])]


def _put_row(bits: _BitWriter, row: bytes) -> None:
    """One row literally, a run of equal bytes as one literal and a match at distance 1."""
    at = 0
    while at < len(row):
        byte = row[at]
        bits.put(*_CODES[byte])
        end = at + 1
        while end < len(row) and row[end] == byte:
            end += 1
        lengths = _match_lengths(end - at - 1)
        for length in lengths:
            _put_match(bits, length, 1)
        at = end if lengths else at + 1


def _compress(rows: list[tuple[bytes, int]]) -> bytes:
    """A zlib stream (RFC 1950) of rows and how often each comes."""
    bits = _BitWriter()
    bits.put(0b011, 3)  # last block, fixed Huffman codes
    checksum = 1
    for row, times in rows:
        _put_row(bits, row)
        lengths = _match_lengths(len(row) * (times - 1)) if len(row) <= _DISTANCE_MAX else []
        if lengths:
            for length in lengths:
                _put_match(bits, length, len(row))
        else:
            for _ in range(times - 1):
                _put_row(bits, row)
        checksum = zlib.adler32(row * times, checksum)
    bits.put(*_CODES[_END_OF_BLOCK])
    return b"\x78\x01" + bits.finish() + struct.pack(">I", checksum)
