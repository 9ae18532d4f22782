"""The decoders that read a drawn code back, each as an application asks it: for a code's text.

zxing-cpp always does. zbar joins when its shared library is installed (Debian: ``libzbar0``); it is called through
ctypes, a hundred times faster than starting its program once per label, with the settings of that program.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from importlib.metadata import version
from typing import Final, Protocol

import zxingcpp

from simulator.labels.symbol.pictures import Pixels

QR_ONLY: Final = zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.QRCode])
_FOURCC_Y800: Final = int.from_bytes(b"Y800", "little")
_ZBAR_QRCODE: Final = 64
_ZBAR_ENABLE: Final = 0


class Decoder(Protocol):
    """One independent reader of QR codes."""

    @property
    def name(self) -> str:
        """A short word for manifests."""
        ...

    def read(self, pixels: Pixels) -> tuple[str, ...]:
        """The text of each QR code found in the picture, in no particular order."""
        ...


class Zxing:
    """zxing-cpp, as a scanner app uses it: all rotations, scales and inversions are tried."""

    name = "zxing"
    title = f"zxing-cpp {version('zxing-cpp')}"

    def read(self, pixels: Pixels) -> tuple[str, ...]:
        """The text of each QR code found in the picture. See :class:`Decoder`."""
        return tuple(code.text for code in zxingcpp.read_barcodes(pixels, formats=QR_ONLY))


def read_codes(pixels: Pixels) -> tuple[bytes, ...]:
    """The bytes of each QR code that zxing-cpp finds in a picture, whatever text they stand for."""
    return tuple(bytes(code.bytes) for code in zxingcpp.read_barcodes(pixels, formats=QR_ONLY))


class Zbar:
    """zbar through its shared library.

    A scanner draws random numbers and goes on in their sequence from one picture to the next, so what it says about a
    picture near its limit depended on those before it. Each picture gets a scanner of its own: 7 microseconds.
    """

    name = "zbar"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._lib = library
        numbers = [ctypes.c_uint() for _ in range(3)]
        library.zbar_version(*map(ctypes.byref, numbers))
        self.title = f"zbar {'.'.join(str(number.value) for number in numbers)}"

    def read(self, pixels: Pixels) -> tuple[str, ...]:
        """The text of each QR code found in the picture. See :class:`Decoder`."""
        lib = self._lib
        height, width = pixels.shape
        buffer = ctypes.create_string_buffer(pixels.tobytes(), pixels.size)
        scanner = lib.zbar_image_scanner_create()
        lib.zbar_image_scanner_set_config(scanner, 0, _ZBAR_ENABLE, 0)
        lib.zbar_image_scanner_set_config(scanner, _ZBAR_QRCODE, _ZBAR_ENABLE, 1)
        picture = lib.zbar_image_create()
        try:
            lib.zbar_image_set_format(picture, _FOURCC_Y800)
            lib.zbar_image_set_size(picture, width, height)
            lib.zbar_image_set_data(picture, ctypes.cast(buffer, ctypes.c_void_p), pixels.size, None)
            lib.zbar_scan_image(scanner, picture)
            found = []
            symbol = lib.zbar_image_first_symbol(picture)
            while symbol:
                size = lib.zbar_symbol_get_data_length(symbol)
                found.append(ctypes.string_at(lib.zbar_symbol_get_data(symbol), size).decode(errors="replace"))
                symbol = lib.zbar_symbol_next(symbol)
            return tuple(found)
        finally:
            lib.zbar_image_destroy(picture)
            lib.zbar_image_scanner_destroy(scanner)


_ZBAR_FUNCTIONS: Final = (
    ("zbar_version", ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    ("zbar_image_scanner_create", ctypes.c_void_p, ()),
    ("zbar_image_scanner_destroy", None, (ctypes.c_void_p,)),
    ("zbar_image_scanner_set_config", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int)),
    ("zbar_image_create", ctypes.c_void_p, ()),
    ("zbar_image_destroy", None, (ctypes.c_void_p,)),
    ("zbar_image_set_format", None, (ctypes.c_void_p, ctypes.c_ulong)),
    ("zbar_image_set_size", None, (ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)),
    ("zbar_image_set_data", None, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p)),
    ("zbar_scan_image", ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p)),
    ("zbar_image_first_symbol", ctypes.c_void_p, (ctypes.c_void_p,)),
    ("zbar_symbol_next", ctypes.c_void_p, (ctypes.c_void_p,)),
    ("zbar_symbol_get_data", ctypes.c_void_p, (ctypes.c_void_p,)),
    ("zbar_symbol_get_data_length", ctypes.c_uint, (ctypes.c_void_p,)),
)


def find_zbar() -> Zbar | None:
    """zbar, when this machine has its library."""
    name = ctypes.util.find_library("zbar")
    if name is None:
        return None
    try:
        library = ctypes.CDLL(name)
        for function, result, arguments in _ZBAR_FUNCTIONS:
            entry = getattr(library, function)
            entry.restype = result
            entry.argtypes = arguments
    except (OSError, AttributeError):
        return None
    return Zbar(library)


def panel() -> tuple[Decoder, ...]:
    """The decoders of this machine, all of which have to read a label: zxing-cpp, then zbar where it is installed."""
    zbar = find_zbar()
    return (Zxing(), zbar) if zbar else (Zxing(),)


def lone_decoder_warning(names: tuple[str, ...]) -> str | None:
    """A warning when fewer than two independent decoders agreed; ``None`` with two or more."""
    if len(names) > 1:
        return None
    return (
        f"proven by one decoder alone, {', '.join(names)}: for a second one install zbar's library (Debian: apt-get "
        "install libzbar0; macOS: brew install zbar)"
    )
