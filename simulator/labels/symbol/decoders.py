"""The panel: independent decoders that read a drawn image back.

zxing-cpp is always in the panel. zbar joins when its shared library is installed (Debian: ``libzbar0``); it is called
through ctypes, a hundred times faster than starting its program once per label. OpenCV joins when its Python package
is installed (the extra ``opencv``). The order is always zxing, zbar, opencv. A further decoder is a class with ``name``
and ``read``, and an entry in :data:`_FINDERS`.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import importlib.util
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, Protocol, runtime_checkable

import zxingcpp

from simulator.labels.errors import LabelError

_QR_ONLY: Final = zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.QRCode])
_FOURCC_Y800: Final = int.from_bytes(b"Y800", "little")
_ZBAR_QRCODE: Final = 64
_ZBAR_ENABLE: Final = 0
_ZBAR_BINARY: Final = 4
ANSWER_S: Final = 30.0
"""How long a decoder may take over one picture: the same for all of them, wherever a limit holds."""


@dataclass(frozen=True, slots=True)
class GrayImage:
    """Pixels as a decoder takes them.

    Attributes:
        width: in pixels.
        height: in pixels.
        pixels: ``width * height`` bytes from the top left, 0 black to 255 white.
    """

    width: int
    height: int
    pixels: bytes


@dataclass(frozen=True, slots=True)
class ColourImage:
    """A picture in colour: an array of pixels.

    Attributes:
        width: in pixels.
        height: in pixels.
        pixels: ``3 * width * height`` bytes from the top left: red, green, blue.
    """

    width: int
    height: int
    pixels: bytes


@runtime_checkable
class ReadsColour(Protocol):
    """A decoder that also takes pixels in colour, and makes grey of them in its own way."""

    def read_colour(self, image: ColourImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image."""
        ...


class Decoder(Protocol):
    """One independent reader of QR codes."""

    @property
    def name(self) -> str:
        """A short word for manifests."""
        ...

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image, in no particular order."""
        ...


class NoAnswer(RuntimeError):
    """A decoder failed at a picture, or took too long over it: it has not said that it does not read it."""


_limit_s = 0.0


def limit_answers(seconds: float) -> None:
    """End this process when a decoder takes longer over one picture; for processes that somebody watches.

    Decoders are C and C++, which no exception interrupts: the alarm signal ends the process. Windows has no such
    signal, and no limit.
    """
    global _limit_s
    _limit_s = seconds if hasattr(signal, "setitimer") else 0.0


@contextlib.contextmanager
def within_limit() -> Iterator[None]:
    """The limit of :func:`limit_answers` for the length of the block; none in other processes."""
    if not _limit_s:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, _limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def ask(decoder: Decoder, image: GrayImage) -> tuple[bytes, ...]:
    """What a decoder reads in a picture, within the limit of this process."""
    if not _limit_s or getattr(decoder, "has_own_limit", False):
        return decoder.read(image)
    with within_limit():
        return decoder.read(image)


@dataclass(frozen=True, slots=True)
class Zxing:
    """zxing-cpp, as a scanner app uses it: all rotations, scales and inversions are tried."""

    name: str = "zxing"
    title: str = f"zxing-cpp {version('zxing-cpp')}"

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image, in no particular order. See :class:`Decoder`."""
        pixels = memoryview(image.pixels).cast("B", (image.height, image.width))
        found = zxingcpp.read_barcodes(pixels, formats=_QR_ONLY)
        return tuple(bytes(code.bytes) for code in found)

    def read_colour(self, image: ColourImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image. See :class:`ReadsColour`."""
        pixels = memoryview(image.pixels).cast("B", (image.height, image.width, 3))
        return tuple(bytes(code.bytes) for code in zxingcpp.read_barcodes(pixels, formats=_QR_ONLY))


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
        scanner, self.exact_bytes = self._make_scanner()
        library.zbar_image_scanner_destroy(scanner)

    def _make_scanner(self) -> tuple[int, bool]:
        """A scanner for QR codes alone, and whether it gives a code's bytes unchanged."""
        scanner = self._lib.zbar_image_scanner_create()
        set_config = self._lib.zbar_image_scanner_set_config
        set_config(scanner, 0, _ZBAR_ENABLE, 0)
        set_config(scanner, _ZBAR_QRCODE, _ZBAR_ENABLE, 1)
        # Bytes as they are in the code: zbar would otherwise guess a character set and re-encode.
        return scanner, set_config(scanner, _ZBAR_QRCODE, _ZBAR_BINARY, 1) == 0

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image, in no particular order. See :class:`Decoder`."""
        lib = self._lib
        pixels = ctypes.create_string_buffer(image.pixels, len(image.pixels))
        scanner, _ = self._make_scanner()
        picture = lib.zbar_image_create()
        try:
            lib.zbar_image_set_format(picture, _FOURCC_Y800)
            lib.zbar_image_set_size(picture, image.width, image.height)
            lib.zbar_image_set_data(picture, ctypes.cast(pixels, ctypes.c_void_p), len(image.pixels), None)
            lib.zbar_scan_image(scanner, picture)
            found = []
            symbol = lib.zbar_image_first_symbol(picture)
            while symbol:
                size = lib.zbar_symbol_get_data_length(symbol)
                found.append(ctypes.string_at(lib.zbar_symbol_get_data(symbol), size))
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
    """zbar, when this machine has its library in a version that gives the code's bytes unchanged (0.23.1 on)."""
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
    decoder = Zbar(library)
    return decoder if decoder.exact_bytes else None


class OpenCv:
    """OpenCV's detector for one code, in one thread. It draws random numbers: each picture begins at the same ones."""

    name = "opencv"

    def __init__(self) -> None:
        import cv2  # two seconds and 60 MB, for those who have it and use it
        import numpy as np

        cv2.setNumThreads(1)
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # it remarks on UTF-8 that it reads well
        self._cv2 = cv2
        self._np = np
        self._detector = cv2.QRCodeDetector()
        self.title = f"OpenCV {cv2.__version__}"

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image, in no particular order. See :class:`Decoder`."""
        return self._read(self._np.frombuffer(image.pixels, self._np.uint8).reshape(image.height, image.width))

    def read_colour(self, image: ColourImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image. See :class:`ReadsColour`."""
        pixels = self._np.frombuffer(image.pixels, self._np.uint8).reshape(image.height, image.width, 3)
        return self._read(self._np.ascontiguousarray(pixels[:, :, ::-1]))  # OpenCV counts from blue

    def _read(self, pixels: Any) -> tuple[bytes, ...]:
        self._cv2.setRNGSeed(1)
        try:
            text, _, _ = self._detector.detectAndDecodeBytes(pixels)
        except self._cv2.error:  # an assertion of its own on pictures that it did not foresee
            return ()
        return (bytes(text),) if text else ()


def find_opencv() -> OpenCv | None:
    """OpenCV, when its package is installed and loads."""
    if importlib.util.find_spec("cv2") is None:
        return None
    try:
        return OpenCv()
    except (ImportError, AttributeError):  # a system library that it needs is missing, or it is older than 4.11
        return None


_FINDERS: Final[dict[str, Callable[[], Decoder | None]]] = {
    "zxing": Zxing,
    "zbar": find_zbar,
    "opencv": find_opencv,
}
_FIXES: Final = {
    "zbar": "install its library (Debian: apt-get install libzbar0; macOS: brew install zbar)",
    "opencv": "pip install '.[opencv]' in a clone of device-agent",
}
DECODERS: Final = tuple(_FINDERS)
"""Every decoder that there is, in the order of manifests."""


def panel(names: Iterable[str] | None = None) -> tuple[Decoder, ...]:
    """The decoders that have to agree, in the order of :data:`DECODERS`.

    Args:
        names: exactly these; by default all that are installed on this machine.

    Raises:
        LabelError: a decoder that does not exist or is not installed, or none at all.
    """
    if names is None:
        return tuple(decoder for find in _FINDERS.values() if (decoder := find()) is not None)
    wanted = set(names)
    if not wanted or wanted - set(_FINDERS):
        unknown = ", ".join(sorted(wanted - set(_FINDERS))) or "none"
        raise LabelError(f"decoders: {unknown} asked for; give one or more of {', '.join(DECODERS)}")
    found = {name: _FINDERS[name]() for name in DECODERS if name in wanted}
    missing = [name for name, decoder in found.items() if decoder is None]
    if missing:
        fixes = "; ".join(f"{name}: {_FIXES[name]}" for name in missing)
        raise LabelError(f"not installed on this machine: {fixes}; or leave it out of --decoders")
    return tuple(decoder for decoder in found.values() if decoder is not None)


def title(decoder: Decoder) -> str:
    """A decoder's own name and version, for what is claimed of it; its short word where it has none."""
    return str(getattr(decoder, "title", decoder.name))


def lone_decoder_warning(names: Sequence[str]) -> str | None:
    """A warning when fewer than two independent decoders agreed; ``None`` with two or more."""
    if len(names) > 1:
        return None
    fixes = "; ".join(f"{name}: {fix}" for name, fix in _FIXES.items() if name not in names)
    return f"proven by one decoder alone, {', '.join(names)}: for an independent second one, {fixes}"
