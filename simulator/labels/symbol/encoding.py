"""Encode a text as a QR symbol, in every way that a label may take.

ASCII text is encoded by zxing-cpp. For other text it writes an ECI mark and changes the mode on the way where that
saves bits. Older scanner apps do not know the mark, and OpenCV reads nothing at all out of a marked code whose modes
change. So these codes are made by the library ``qrcode``, as one run of bytes without a mark: ten times slower, and
read by everybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import qrcode
import zxingcpp
from qrcode.exceptions import DataOverflowError
from qrcode.util import QRData
from typing_extensions import Buffer

from simulator.labels.errors import LabelError
from simulator.labels.symbol.matrix import Matrix

LEVELS: Final = ("L", "M", "Q", "H")
"""Error correction levels from the lowest."""
_VERSION_MAX: Final = 40
_LARGER_VERSIONS: Final = (0, 1, 2)
_DARK_IS_ONE: Final = bytes([1] * 128 + [0] * 128)
_BYTES: Final = 4  # MODE_8BIT_BYTE; the stubs want the number itself
_QRCODE_LEVELS: Final = {
    "L": qrcode.constants.ERROR_CORRECT_L,
    "M": qrcode.constants.ERROR_CORRECT_M,
    "Q": qrcode.constants.ERROR_CORRECT_Q,
    "H": qrcode.constants.ERROR_CORRECT_H,
}


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


@lru_cache(maxsize=len(LEVELS))
def candidates(level: str) -> tuple[Candidate, ...]:
    """All of :func:`candidate_order`."""
    return tuple(candidate_order(level))


def encode(text: str, candidate: Candidate) -> Matrix | None:
    """The symbol of a text, or ``None`` when no version holds it that way.

    Text beyond ASCII goes in as UTF-8 bytes without an ECI mark: scanner apps read both, older ones only this.
    """
    if not text.isascii():
        return _encode_utf8(text.encode(), candidate)
    options: dict[str, Any] = {"ec_level": candidate.level}
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


def _encode_utf8(data: bytes, candidate: Candidate) -> Matrix | None:
    version = None
    if candidate.larger_by:
        smallest = _encode_bytes(data, level=candidate.level, mask=0)
        if smallest is None or smallest.version + candidate.larger_by > _VERSION_MAX:
            return None
        version = smallest.version + candidate.larger_by
    return _encode_bytes(data, level=candidate.level, mask=candidate.mask, version=version)


def _encode_bytes(data: bytes, *, level: str, mask: int | None, version: int | None = None) -> Matrix | None:
    """The symbol of these bytes, or ``None`` when the version does not hold them.

    Args:
        data: the content.
        level: error correction level: L, M, Q or H.
        mask: 0 to 7, or ``None`` for the one with the lowest penalty.
        version: 1 to 40, or ``None`` for the smallest that holds the content.
    """
    code = qrcode.QRCode(version=version, error_correction=_QRCODE_LEVELS[level], border=0, mask_pattern=mask)
    code.add_data(QRData(data, mode=_BYTES, check_data=False), optimize=0)
    try:
        code.make(fit=version is None)
    except (DataOverflowError, ValueError):  # the latter from the search for a version: there is none above 40
        return None
    return Matrix(tuple(bytes(map(bool, row)) for row in code.modules))
