"""A symbol whose whole content is one run of bytes, without an ECI mark: how text beyond ASCII goes into a code.

zxing-cpp writes such text with an ECI mark and changes the mode on the way where that saves bits. Older scanner apps
do not know the mark, and OpenCV reads nothing at all out of a marked code whose modes change. So these codes are made
by the library ``qrcode``: ten times slower, and read by everybody.
"""

from __future__ import annotations

from typing import Final

import qrcode
from qrcode.exceptions import DataOverflowError
from qrcode.util import QRData

from simulator.labels.symbol.matrix import Matrix

_BYTES: Final = 4  # MODE_8BIT_BYTE; the stubs want the number itself
_LEVELS: Final = {
    "L": qrcode.constants.ERROR_CORRECT_L,
    "M": qrcode.constants.ERROR_CORRECT_M,
    "Q": qrcode.constants.ERROR_CORRECT_Q,
    "H": qrcode.constants.ERROR_CORRECT_H,
}


def encode_bytes(data: bytes, *, level: str, mask: int | None, version: int | None = None) -> Matrix | None:
    """The symbol of these bytes, or ``None`` when the version does not hold them.

    Args:
        data: the content.
        level: error correction level: L, M, Q or H.
        mask: 0 to 7, or ``None`` for the one with the lowest penalty.
        version: 1 to 40, or ``None`` for the smallest that holds the content.
    """
    code = qrcode.QRCode(version=version, error_correction=_LEVELS[level], border=0, mask_pattern=mask)
    code.add_data(QRData(data, mode=_BYTES, check_data=False), optimize=0)
    try:
        code.make(fit=version is None)
    except (DataOverflowError, ValueError):  # the latter from the search for a version: there is none above 40
        return None
    return Matrix(tuple(bytes(map(bool, row)) for row in code.modules))
