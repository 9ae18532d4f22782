"""One code for a screen or a leaflet: in the terminal, or with colours, shapes and a logo; proven like any other.

The symbol is a candidate of the usual order, the library ``qrcode`` draws it, and the drawing is read back by the
panel: in grey, as a camera's brightness, and in colour by the decoders that take it. What cannot be read is never
written.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import qrcode
from PIL import Image, UnidentifiedImageError
from qrcode.image.styledpil import StyledPilImage
from qrcode.image.styles.colormasks import SolidFillColorMask
from qrcode.image.styles.moduledrawers import pil

from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.symbol.decoders import ColourImage, Decoder, GrayImage, ReadsColour, ask
from simulator.labels.symbol.encoding import candidate_order, encode
from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix
from simulator.labels.symbol.proving import DecodeVerdict, Trial, verdict_on

SHAPES: Final = MappingProxyType(
    {
        "square": pil.SquareModuleDrawer,
        "gapped": pil.GappedSquareModuleDrawer,
        "circle": pil.CircleModuleDrawer,
        "rounded": pil.RoundedModuleDrawer,
        "vertical": pil.VerticalBarsDrawer,
        "horizontal": pil.HorizontalBarsDrawer,
    }
)
"""Module shapes by name."""
CONTRAST_MIN: Final = 0.4
"""Brightness of light minus dark; ISO/IEC 15415 gives less than 0.4 the grade D."""
LOGO_SHARE_MAX: Final = 0.3
"""Of the code's edge: a tenth of the area, when level H mends at most 30 % of the codewords."""
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")
_LOGO_PIXELS_MAX: Final = 50_000_000
_TERMINAL_DOTS: Final = 4
_BLOCKS: Final = {" ": (0, 0), "\u2580": (1, 0), "\u2584": (0, 1), "\u2588": (1, 1), "\xa0": (0, 0)}


@dataclass(frozen=True, slots=True)
class Style:
    """How a code looks.

    Attributes:
        shape: a key of :data:`SHAPES`.
        dark: colour of the modules, as ``#rrggbb``.
        light: colour of the ground and the quiet zone.
        logo: a picture for the middle.
        logo_share: its edge as a part of the whole code's.
        dots_per_module: edge of a module in pixels.

    Raises:
        LabelError: no such shape, no colour, too little contrast, too large a logo.
    """

    shape: str = "square"
    dark: str = "#000000"
    light: str = "#ffffff"
    logo: Path | None = None
    logo_share: float = 0.2
    dots_per_module: int = 10

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise LabelError(f"no shape {self.shape!r}: there is {', '.join(SHAPES)}")
        for colour in (self.dark, self.light):
            if not _COLOUR.fullmatch(colour):
                raise LabelError(f"no colour {colour!r}: give six hexadecimal digits, such as #1a2b3c")
        if not 4 <= self.dots_per_module <= 100:
            raise LabelError(f"{self.dots_per_module} dots per module: give 4 to 100")
        contrast = brightness(self.light) - brightness(self.dark)
        if contrast < CONTRAST_MIN:
            way = "the dark colour is not darker than the light one" if contrast <= 0 else "the contrast is too low"
            raise LabelError(
                f"{way}: {self.dark} on {self.light} is {contrast:.0%}, at least {CONTRAST_MIN:.0%} is needed; take a "
                "darker --dark or a lighter --light"
            )
        if self.logo and not 0.05 <= self.logo_share <= LOGO_SHARE_MAX:
            raise LabelError(
                f"a logo of {self.logo_share:.0%} of the edge is too large or too small: give 0.05 to {LOGO_SHARE_MAX}"
            )

    @property
    def red_light_contrast(self) -> float:
        """Contrast for a scanner that lights with red: red ink is white to it."""
        return (int(self.light[1:3], 16) - int(self.dark[1:3], 16)) / 255


@dataclass(frozen=True, slots=True)
class ProvenDrawing:
    """A drawing that the whole panel read.

    Attributes:
        text: what it says.
        matrix: its modules.
        data: the PNG file, or the terminal's lines in UTF-8.
        taken: the trial that was good; verdicts in colour are named ``zxing colour``.
        missed: the trials before it.
    """

    text: str
    matrix: Matrix
    data: bytes
    taken: Trial
    missed: tuple[Trial, ...]


def brightness(colour: str) -> float:
    """The brightness of ``#rrggbb`` from 0 to 1, weighted as Pillow and cameras do (ITU-R BT.601)."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def prove_styled(text: str, *, style: Style, level: str, panel: Sequence[Decoder]) -> ProvenDrawing:
    """The first candidate whose styled drawing the whole panel reads.

    Args:
        text: what the code says.
        style: how it looks.
        level: the lowest error correction level; with a logo it is H.
        panel: who has to read it.

    Raises:
        LabelError: the logo cannot be read, the text is too long, or there is no such level.
        UnreadableLabel: no candidate was read by all.
    """
    logo = _load_logo(style.logo) if style.logo else None

    def draw(matrix: Matrix) -> bytes:
        options: dict[str, Any] = {"embedded_image": logo, "embedded_image_ratio": style.logo_share} if logo else {}
        picture = _drawer(matrix, style.dots_per_module).make_image(
            image_factory=StyledPilImage,
            module_drawer=SHAPES[style.shape](),
            color_mask=SolidFillColorMask(back_color=_rgb(style.light), front_color=_rgb(style.dark)),
            **options,
        )
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        return buffer.getvalue()

    def look(data: bytes) -> tuple[GrayImage, ColourImage]:
        with Image.open(io.BytesIO(data)) as opened:
            colour, gray = opened.convert("RGB"), opened.convert("L")
        return (
            GrayImage(gray.width, gray.height, gray.tobytes()),
            ColourImage(colour.width, colour.height, colour.tobytes()),
        )

    advice = "take a smaller logo (--logo-share), more contrast or the shape square"
    # The library draws a logo on level H only, which mends the most; so it is what a logo gets.
    return _first_read(text, "H" if logo else level, panel, _Drawing(draw, look, advice))


def prove_terminal(text: str, *, invert: bool, level: str, panel: Sequence[Decoder]) -> ProvenDrawing:
    """The first candidate that the whole panel reads from its half blocks.

    Args:
        text: what the code says.
        invert: for a terminal with dark letters on a light ground.
        level: the lowest error correction level.
        panel: who has to read it.

    Raises:
        LabelError: the text is too long, or there is no such level.
        UnreadableLabel: no candidate was read by all.
    """

    def draw(matrix: Matrix) -> bytes:
        lines = io.StringIO()
        _drawer(matrix, 1).print_ascii(out=lines, invert=not invert)
        return lines.getvalue().encode()

    def look(data: bytes) -> tuple[GrayImage, None]:
        rows = [half for line in data.decode().splitlines() for half in _half_rows(line)]
        # A lit half block is light on a dark terminal, and ink on a light one.
        lit, unlit = (b"\0", b"\xff") if invert else (b"\xff", b"\0")
        pixels = b"".join(
            b"".join((lit if on else unlit) * _TERMINAL_DOTS for on in row) * _TERMINAL_DOTS for row in rows
        )
        return GrayImage(len(rows[0]) * _TERMINAL_DOTS, len(rows) * _TERMINAL_DOTS, pixels), None

    return _first_read(text, level, panel, _Drawing(draw, look, "give a shorter text"))


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A way to draw: modules to bytes, bytes to what a decoder sees, and what to do when none reads it."""

    draw: Callable[[Matrix], bytes]
    look: Callable[[bytes], tuple[GrayImage, ColourImage | None]]
    advice: str


def _first_read(text: str, level: str, panel: Sequence[Decoder], drawing: _Drawing) -> ProvenDrawing:
    missed: list[Trial] = []
    for number, candidate in enumerate(candidate_order(level), start=1):
        matrix = encode(text, candidate)
        if matrix is None:
            if number == 1:
                raise LabelError(f"{len(text.encode())} bytes are more than one QR code holds at level {level}")
            continue
        data = drawing.draw(matrix)
        trial = Trial(number, candidate, _verdicts(text.encode(), panel, *drawing.look(data)))
        if trial.good:
            return ProvenDrawing(text, matrix, data, trial, tuple(missed))
        missed.append(trial)
    names = ", ".join(
        dict.fromkeys(name for trial in missed for name, v in trial.verdicts if v is not DecodeVerdict.READ)
    )
    raise UnreadableLabel(
        f"no drawing was read by the whole panel ({names} missed some or all of them): {drawing.advice}"
    )


def _verdicts(
    expected: bytes, panel: Sequence[Decoder], gray: GrayImage, colour: ColourImage | None
) -> tuple[tuple[str, DecodeVerdict], ...]:
    found = [(decoder.name, ask(decoder, gray)) for decoder in panel]
    if colour is not None:
        found += [
            (f"{decoder.name} colour", decoder.read_colour(colour))
            for decoder in panel
            if isinstance(decoder, ReadsColour)
        ]
    return tuple((name, verdict_on(read, expected)) for name, read in found)


def _drawer(matrix: Matrix, dots: int) -> Any:
    """The library's code object with our modules in it: it draws, the candidates stay ours."""
    code: Any = qrcode.QRCode(
        version=matrix.version,
        error_correction=qrcode.constants.ERROR_CORRECT_H,  # checked by the library when there is a logo
        border=QUIET_MODULES,
        box_size=dots,
        mask_pattern=0,
    )
    code.modules = [[bool(module) for module in row] for row in matrix.rows]
    code.modules_count = matrix.modules
    code.data_cache = ()  # not None: or it would encode by itself
    return code


def _half_rows(line: str) -> tuple[list[int], list[int]]:
    halves = [_BLOCKS[char] for char in line]
    return [upper for upper, _ in halves], [lower for _, lower in halves]


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _load_logo(path: Path) -> Image.Image:
    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > _LOGO_PIXELS_MAX:
                raise LabelError(f"{path}: too many pixels for a logo; scale it down")
            return opened.convert("RGBA" if opened.has_transparency_data else "RGB")
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError):
        raise LabelError(f"{path}: not a picture that can be read; give a PNG or JPEG file to --logo") from None
    except OSError as problem:
        raise LabelError(f"{path}: {problem.strerror or problem}; give a picture to --logo") from None
