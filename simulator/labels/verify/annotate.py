"""The pictures again, each code in a box with its identifier, coloured by what is to be said of it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from simulator.labels.verify.pages import Page
from simulator.labels.verify.report import Line, State

_EDGE_MAX: Final = 2400
_COLOURS: Final = {
    State.READ: (0, 130, 60),
    State.DOUBLE: (190, 95, 0),
    State.FOREIGN: (190, 30, 30),
    State.UNREAD: (140, 0, 140),
}
_SIGNS: Final = {State.READ: "", State.DOUBLE: "double: ", State.FOREIGN: "foreign: ", State.UNREAD: "unread"}
_PAPER: Final = (255, 255, 255)
_CHARS_MAX: Final = 40
_BEYOND: Final = 1.03


def annotate(page: Page, lines: Sequence[Line], missing: Sequence[Line]) -> bytes:
    """A page with its codes marked, as PNG of at most 2,400 pixels an edge.

    Args:
        page: the page.
        lines: its codes.
        missing: labels that are in no picture; named in a strip below the page.
    """
    factor = min(1.0, _EDGE_MAX / max(page.pixels.shape))
    size = max(1, round(page.pixels.shape[1] * factor)), max(1, round(page.pixels.shape[0] * factor))
    picture = Image.fromarray(page.pixels).resize(size, Image.Resampling.BOX).convert("RGB")
    letters = max(11, min(28, round(max(size) / 80)))
    draw = ImageDraw.Draw(picture)
    for line in lines:
        if line.corners:
            _mark(draw, line, [(x * factor, y * factor) for x, y in line.corners], letters)
    if missing:
        picture = _with_strip(picture, missing, letters)
    file = io.BytesIO()
    picture.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def _mark(draw: ImageDraw.ImageDraw, line: Line, corners: list[tuple[float, float]], letters: int) -> None:
    colour = _COLOURS[line.state]
    # Closed and a corner more, so that the joints are round everywhere; a little outside, clear of the modules.
    x, y = sum(x for x, _ in corners) / 4, sum(y for _, y in corners) / 4
    around = [(x + (cx - x) * _BEYOND, y + (cy - y) * _BEYOND) for cx, cy in corners]
    draw.line([*around, *around[:2]], fill=colour, width=max(3, letters // 4), joint="curve")
    text = _SIGNS[line.state] + _short(line.identifier or line.text)
    font = _font(letters)
    left, bottom = min(x for x, _ in around), min(y for _, y in around)
    top = max(0.0, bottom - letters * 1.35)
    width = draw.textlength(text, font)
    draw.rectangle((left, top, left + width + 6, top + letters * 1.3), fill=colour)
    draw.text((left + 3, top), text, _PAPER, font)


def _with_strip(picture: Image.Image, missing: Sequence[Line], letters: int) -> Image.Image:
    """The picture above a strip that names what is missing, as many as fit into four lines."""
    font = _font(letters)
    lines = [f"missing, {len(missing)}:"]
    for line in missing:
        longer = f"{lines[-1]} {_short(line.identifier)}"
        if font.getlength(longer) > picture.width - 20:
            if len(lines) == 4:
                lines[-1] += " \u2026"
                break
            longer = _short(line.identifier)
            lines.append("")
        lines[-1] = longer
    whole = Image.new("RGB", (picture.width, picture.height + round(letters * (1.4 * len(lines) + 0.8))), _PAPER)
    whole.paste(picture, (0, 0))
    draw = ImageDraw.Draw(whole)
    for number, text in enumerate(lines):
        draw.text((10, picture.height + letters * (0.4 + 1.4 * number)), text, _COLOURS[State.FOREIGN], font)
    return whole


def _short(text: str) -> str:
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return plain if len(plain) <= _CHARS_MAX else plain[: _CHARS_MAX - 1] + "\u2026"


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
