"""A QR symbol as a matrix of modules, without its quiet zone: a value, drawn and hashed elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

QUIET_MODULES: Final = 4
"""The quiet zone on each side, in modules (ISO/IEC 18004, 6.3.8: at least 4)."""

_BINARY_DIGITS: Final = bytes([ord("0"), ord("1")]).ljust(256, b"?")
_MODULES: Final = bytes(1 if value == ord("1") else 0 for value in range(256))


@dataclass(frozen=True, slots=True)
class Matrix:
    """The modules of a square symbol.

    Attributes:
        rows: one ``bytes`` per row from the top, one byte per module: 1 dark, 0 light.
    """

    rows: tuple[bytes, ...]

    @property
    def modules(self) -> int:
        """Modules along one edge, quiet zone not counted: 21 for version 1, 4 more for each version."""
        return len(self.rows)

    @property
    def modules_with_quiet_zone(self) -> int:
        """Modules along one edge, quiet zone on both sides counted."""
        return self.modules + 2 * QUIET_MODULES

    @property
    def version(self) -> int:
        """The QR version, 1 to 40."""
        return (self.modules - 17) // 4

    @property
    def level_and_mask(self) -> tuple[str, int]:
        """Error correction level (L, M, Q, H) and mask (0 to 7), read from the format information.

        Source: ISO/IEC 18004, 7.9: the five data bits stand in row 8, columns 0 to 4, XORed with 10101.
        """
        bits = 0
        for module in self.rows[8][:5]:
            bits = bits << 1 | module
        bits ^= 0b10101
        return "MLHQ"[bits >> 3], bits & 0b111

    def dark_runs(self) -> Iterator[tuple[int, int, int]]:
        """Each horizontal run of dark modules as ``(column, row, length)``, top to bottom, left to right."""
        for y, row in enumerate(self.rows):
            start = row.find(1)
            while start >= 0:
                end = row.find(0, start)
                end = len(row) if end < 0 else end
                yield start, y, end - start
                start = row.find(1, end)

    def packed(self) -> bytes:
        """The modules as one number, the last one its lowest bit, in as few bytes as hold it."""
        digits = b"".join(self.rows).translate(_BINARY_DIGITS)
        return int(digits, 2).to_bytes((len(digits) + 7) // 8, "big")

    @classmethod
    def unpacked(cls, packed: bytes, modules: int) -> Matrix:
        """The symbol with ``modules`` along an edge that :meth:`packed` gave."""
        digits = format(int.from_bytes(packed, "big"), f"0{modules * modules}b").encode().translate(_MODULES)
        return cls(tuple(digits[at : at + modules] for at in range(0, len(digits), modules)))

    def sha256(self) -> str:
        """A name for the modules themselves: equal for equal symbols, whatever file format shows them."""
        return hashlib.sha256(b"".join(self.rows)).hexdigest()
