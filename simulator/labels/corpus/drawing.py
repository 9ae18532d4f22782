"""A payload as a picture, byte for byte the same on every machine with the same zxing-cpp."""

from __future__ import annotations

from typing import Any, Final, cast

import zxingcpp
from typing_extensions import Buffer

from simulator.labels.corpus.case import QR, Case
from simulator.labels.symbol.decoders import read_codes
from simulator.labels.symbol.matrix import Matrix
from simulator.labels.symbol.pictures import load_picture
from simulator.labels.symbol.png import draw_png

DPI: Final = 300
_DOTS: Final = 4
_DARK_IS_ONE: Final = bytes([1] * 128 + [0] * 128)
_LEVELS: Final = ("M", "L")
_MASKS: Final = (None, *range(8))


def draw_case(case: Case) -> bytes | None:
    """The picture of a case, or None when the symbol does not hold it, or it has none.

    A QR code is taken only after zxing-cpp gave back its bytes: the encoder's own mask, then the others, first on level
    M and then on L. A symbol of another kind stands in the middle of a white square.
    """
    if not case.drawn or not case.payload:
        return None
    if case.symbology != QR:
        matrix = _encode(case, {})
        return None if matrix is None else draw_png(matrix, dots_per_module=_DOTS, dpi=DPI)
    for level in _LEVELS:
        for mask in _MASKS:
            matrix = _encode(case, {"ec_level": level} | ({} if mask is None else {"data_mask": mask}))
            if matrix is None:
                break
            png = draw_png(matrix, dots_per_module=_DOTS, dpi=DPI)
            if read_codes(load_picture(png)) == (case.payload,):
                return png
    return None


def _encode(case: Case, options: dict[str, Any]) -> Matrix | None:
    # As text where it is ASCII, so that the encoder chooses the smallest mode; else as bytes, without an ECI mark.
    content: str | bytes = case.payload.decode() if case.payload.isascii() else case.payload
    if isinstance(content, str) and "\0" in content:
        content = case.payload
    try:
        code = zxingcpp.create_barcode(content, zxingcpp.BarcodeFormat.__members__[case.symbology], **options)
    except ValueError:
        return None
    image = zxingcpp.write_barcode_to_image(code, scale=1, add_quiet_zones=False)
    height, width = image.shape[0], image.shape[1]
    # The stubs do not say that an image is a buffer; the documentation and the numpy protocol do.
    pixels = memoryview(cast("Buffer", image)).tobytes().translate(_DARK_IS_ONE)
    return _in_a_square([pixels[y * width : (y + 1) * width] for y in range(height)], width)


def _in_a_square(rows: list[bytes], width: int) -> Matrix:
    if len(rows) == width:
        return Matrix(tuple(rows))
    edge = max(width, len(rows)) + 12  # bar codes ask for ten modules on each side; the drawing adds four
    left = (edge - width) // 2
    above = (edge - len(rows)) // 2
    padded = [bytes(left) + row + bytes(edge - width - left) for row in rows]
    return Matrix((bytes(edge),) * above + tuple(padded) + (bytes(edge),) * (edge - len(rows) - above))
