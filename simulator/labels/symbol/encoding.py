"""Encode a text as a QR symbol, in every way that a label may take.

Text beyond ASCII goes in as UTF-8 with an ECI mark that says so. Without the mark readers guess: zbar takes some UTF-8
for Japanese.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import zxingcpp
from typing_extensions import Buffer

from simulator.labels.errors import LabelError
from simulator.labels.symbol.matrix import Matrix

LEVELS: Final = ("L", "M", "Q", "H")
"""Error correction levels from the lowest."""
_VERSION_MAX: Final = 40
_LARGER_VERSIONS: Final = (0, 1, 2)
_DARK_IS_ONE: Final = bytes([1] * 128 + [0] * 128)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to encode a text.

    Attributes:
        larger_by: versions above the smallest that holds the text.
        level: error correction level.
        mask: 0 to 7, or ``None`` for the encoder's own choice (ISO/IEC 18004, 7.8.3: lowest penalty).
    """

    larger_by: int
    level: str
    mask: int | None


def candidate_order(level: str) -> Iterator[Candidate]:
    """The candidates for a text whose label asks for ``level``, in the fixed order.

    Raises:
        LabelError: no such level.
    """
    if level not in LEVELS:
        raise LabelError(f"no error correction level {level!r}: there is {', '.join(LEVELS)}")
    for larger_by in _LARGER_VERSIONS:
        for higher in LEVELS[LEVELS.index(level) :]:
            for mask in (None, *range(8)):
                yield Candidate(larger_by, higher, mask)


def encode(text: str, candidate: Candidate) -> Matrix | None:
    """The symbol of a text, or ``None`` when no version holds it that way."""
    options: dict[str, Any] = {"ec_level": candidate.level}
    if not text.isascii():
        options["eci"] = "UTF-8"
    if candidate.mask is not None:
        options["data_mask"] = candidate.mask
    try:
        if candidate.larger_by:
            smallest = encode(text, Candidate(0, candidate.level, None))
            if smallest is None or smallest.version + candidate.larger_by > _VERSION_MAX:
                return None
            options["version"] = smallest.version + candidate.larger_by
        code = zxingcpp.create_barcode(text, zxingcpp.BarcodeFormat.QRCode, **options)
    except ValueError:
        return None
    image = zxingcpp.write_barcode_to_image(code, scale=1, add_quiet_zones=False)
    edge = image.shape[0]
    # The stubs do not say that an image is a buffer; the documentation and the numpy protocol do.
    pixels = memoryview(cast("Buffer", image)).tobytes().translate(_DARK_IS_ONE)
    return Matrix(tuple(pixels[y * edge : (y + 1) * edge] for y in range(edge)))
