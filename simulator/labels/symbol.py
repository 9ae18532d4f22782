"""One QR code: written by the library qrcode, drawn, and read back by zxing-cpp before it counts.

qrcode looks for the best of eight masks in most of its time. Here the masks are tried in order instead, and the first
whose drawing zxing-cpp reads is taken: nearly always the first.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

import numpy as np
import qrcode
import zxingcpp
from numpy.typing import NDArray
from PIL import Image
from qrcode.exceptions import DataOverflowError

from simulator.labels.errors import LabelError

QUIET_MODULES: Final = 4
"""The quiet zone on each side, in modules (ISO/IEC 18004, 6.3.8: at least 4)."""
LEVELS: Final = {"M": qrcode.ERROR_CORRECT_M, "Q": qrcode.ERROR_CORRECT_Q, "L": qrcode.ERROR_CORRECT_L}
_LABEL_LEVELS: Final = "MQ"
_MASKS: Final = range(8)
_DOTS_MIN: Final = 2
"""Below this many dots a printer's dot gain closes the light modules, and decoders begin to miss."""
_MM_PER_INCH: Final = 25.4
_RESOLUTIONS: Final = (203, 300, 600, 1200, 2400)

Modules = NDArray[np.bool_]
"""A code with its quiet zone, row by row from the top; dark modules are True."""


@dataclass(frozen=True, slots=True)
class PrintSize:
    """The room that a code may take, and the printer that draws it.

    Attributes:
        size_mm: the longest edge allowed, quiet zone counted.
        dpi: the printer's dots per inch; a module is a whole number of its dots.
    """

    size_mm: float = 25.0
    dpi: int = 300

    def __post_init__(self) -> None:
        if not 1 <= self.size_mm <= 1000:
            raise LabelError(f"size is {self.size_mm} mm: give 1 to 1000")
        if not 50 <= self.dpi <= 4800:
            raise LabelError(f"resolution is {self.dpi} dpi: give 50 to 4800")

    def dots_per_module(self, modules: int) -> int:
        """The largest whole number of dots for each of so many modules; 0 when not even one fits."""
        return int((self.size_mm * self.dpi / _MM_PER_INCH + 1e-6) // modules)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A code whose drawing was read back.

    Attributes:
        text: what it says.
        modules: of the code.
        level: error correction level: M, or Q.
        mask: 0 to 7.
        dots_per_module: edge of a module in printer dots.
        dpi: the printer's dots per inch.
        png: the picture that was read.
    """

    text: str
    modules: Modules
    level: str
    mask: int
    dots_per_module: int
    dpi: int
    png: bytes

    @property
    def module_mm(self) -> float:
        """Edge of a module in millimetres."""
        return self.dots_per_module * _MM_PER_INCH / self.dpi

    @property
    def edge_mm(self) -> float:
        """Edge of the code with its quiet zone."""
        return len(self.modules) * self.module_mm

    @property
    def version(self) -> int:
        """The QR version, 1 to 40."""
        return (len(self.modules) - 2 * QUIET_MODULES - 17) // 4


def encode(content: str | bytes, level: str = "M", mask: int = 0) -> Modules:
    """The code of a text or of bytes, which are written as they are.

    Raises:
        LabelError: more than a code holds, or text beyond ASCII, which readers guess at: escape it.
    """
    if isinstance(content, str) and not content.isascii():
        raise LabelError("a code holds ASCII text only, since readers guess at the rest: escape it, as JSON can")
    code = qrcode.QRCode(error_correction=LEVELS[level], border=QUIET_MODULES, mask_pattern=mask)
    code.add_data(content, optimize=0)
    try:
        code.make(fit=True)
    except (DataOverflowError, ValueError):
        raise LabelError(f"{len(content)} bytes of text are more than one QR code holds: shorten it") from None
    return np.array(code.get_matrix(), dtype=np.bool_)


def make_symbol(text: str, size: PrintSize) -> Symbol:
    """The code of a text, as large as the size allows, whose picture zxing-cpp reads as this text and nothing else.

    Raises:
        LabelError: the text does not fit this size, or no code at all, or zxing-cpp read none of those that were tried.
    """
    for level in _LABEL_LEVELS:
        for mask in _MASKS:
            modules = encode(text, level, mask)
            dots = size.dots_per_module(len(modules))
            if dots < _DOTS_MIN:
                raise _too_small(len(modules), size)
            pixels = draw_pixels(modules, dots)
            if [code.text for code in scan(pixels)] == [text]:
                return Symbol(text, modules, level, mask, dots, size.dpi, _png(pixels, size.dpi))
    raise LabelError(f"zxing-cpp read no code of the text {text!r}: another size or resolution may help")


def scan(pixels: NDArray[np.uint8], *, with_unread: bool = False) -> list[zxingcpp.Barcode]:
    """The QR codes that zxing-cpp finds in a grey picture, and with ``with_unread`` those that it saw only."""
    formats = zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.QRCode])
    return zxingcpp.read_barcodes(np.ascontiguousarray(pixels), formats=formats, return_errors=with_unread)


def _too_small(modules: int, size: PrintSize) -> LabelError:
    needed_mm = int(modules * _DOTS_MIN * _MM_PER_INCH / size.dpi * 10 + 1) / 10
    finer = [dpi for dpi in _RESOLUTIONS if PrintSize(size.size_mm, dpi).dots_per_module(modules) >= _DOTS_MIN]
    advice = [f"--size-mm {needed_mm:g}", *(f"a printer with --dpi {dpi}" for dpi in finer[:1])]
    return LabelError(
        f"a code of {modules} modules does not fit {size.size_mm:g} mm at {size.dpi} dpi with {_DOTS_MIN} dots for "
        f"each module: give {' or '.join(advice)}, a shorter text, or --profile compact"
    )


def draw_pixels(modules: Modules, dots: int) -> NDArray[np.uint8]:
    """The grey picture of a code: 0 black, 255 white, ``dots`` pixels for the edge of a module."""
    light = np.where(modules, np.uint8(0), np.uint8(255))
    return light.repeat(dots, axis=0).repeat(dots, axis=1)


def png_of(content: str | bytes, *, dots: int = 8, level: str = "M") -> bytes:
    """Any text, or bytes, as a QR code in a PNG file; it is not read back.

    Raises:
        LabelError: more than a code holds, or text beyond ASCII.
    """
    return _png(draw_pixels(encode(content, level), dots), PrintSize().dpi)


def _png(pixels: NDArray[np.uint8], dpi: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert("1").save(file, "PNG", dpi=(dpi, dpi))
    return file.getvalue()


def svg_of(text: str, *, title: str | None = None) -> str:
    """Any ASCII text as a QR code in SVG, for a screen: one path, a millimetre for each module.

    Raises:
        LabelError: more than a code holds, or text beyond ASCII.
    """
    return draw_svg(encode(text), module_mm=1, title=text if title is None else title)


def draw_svg(modules: Modules, *, module_mm: float, title: str) -> str:
    """A code as SVG in its true size.

    Args:
        modules: of the code.
        module_mm: edge of a module in millimetres.
        title: what a viewer shows and a screen reader says.
    """
    edge = len(modules)
    path = "".join(f"M{x} {y}h{length}v1h-{length}z" for x, y, length in dark_runs(modules))
    edge_mm = f"{edge * module_mm:.4f}mm"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{edge_mm}" height="{edge_mm}" '
        f'viewBox="0 0 {edge} {edge}" shape-rendering="crispEdges" role="img">\n'
        f"<title>{escape(''.join(char if char.isprintable() else ' ' for char in title))}</title>\n"
        f'<rect width="{edge}" height="{edge}" fill="#fff"/>\n'
        f'<path d="{path}" fill="#000"/>\n'
        "</svg>\n"
    )


def dark_runs(modules: Modules) -> Iterator[tuple[int, int, int]]:
    """Each horizontal run of dark modules as ``(column, row, length)``, top to bottom, left to right."""
    for y, row in enumerate(modules):
        edges = np.flatnonzero(np.diff(row, prepend=False, append=False))
        for start, end in edges.reshape(-1, 2):
            yield int(start), y, int(end - start)
