"""A contact sheet: one label, a row for each kind, a column for each severity, a mark for each decoder's verdict."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from simulator.labels.damage.documents import Run
from simulator.labels.damage.flip import Flip, FlipOutcome
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.measuring import DamageFinding
from simulator.labels.damage.pixels import Pixels
from simulator.labels.damage.verdict import PictureVerdict

_THUMB: Final = 60
_GAP: Final = 8
_MARK: Final = 14
_TEXT: Final = 190
_HEAD: Final = 58
_ROW: Final = _THUMB + _MARK + _GAP + 4
_INK: Final = (34, 34, 34)
_SOFT: Final = (110, 110, 110)
_PAPER: Final = (255, 255, 255)
_GROUND: Final = (236, 236, 232)
_COLOURS: Final = {
    PictureVerdict.READ: (0, 130, 60),
    PictureVerdict.SEVERAL: (0, 95, 180),
    PictureVerdict.MISREAD: (200, 100, 0),
    PictureVerdict.NOT_FOUND: (190, 30, 30),
    PictureVerdict.CRASHED: (120, 0, 120),
    PictureVerdict.TIMED_OUT: (120, 0, 120),
}
_COLOURS_KEPT: Final = 16
_ONE_COLUMN_MAX: Final = 8
_CHARS: Final = 34
_LINES: Final = 3


def draw_contact(run: Run, findings: Sequence[DamageFinding]) -> bytes:
    """The contact sheet of one label as PNG.

    Args:
        run: what the findings share.
        findings: of one label, one for each kind.
    """
    rows = len(findings) if len(findings) <= _ONE_COLUMN_MAX else -(-len(findings) // 2)
    width = _TEXT + len(run.severities) * (_THUMB + _GAP) + _GAP
    sheet = Image.new("RGB", (width * -(-len(findings) // rows), _HEAD + rows * _ROW), _GROUND)
    draw = ImageDraw.Draw(sheet)
    _draw_head(draw, run, findings[0].label)
    for number, finding in enumerate(findings):
        left, top = number // rows * width, _HEAD + number % rows * _ROW
        if number % rows == 0:
            _draw_severities(draw, run, left)
        _draw_row(sheet, draw, run, finding, (left, top))
    file = io.BytesIO()
    # Few colours make a small file; none of them may be lost to the many greys.
    sheet.quantize(_COLOURS_KEPT, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def _draw_head(draw: ImageDraw.ImageDraw, run: Run, label: str) -> None:
    draw.text((_GAP, 8), label[:26], _INK, _font(15))
    draw.text((_GAP, 30), f"marks: {', '.join(run.decoders)}", _SOFT, _font(11))
    draw.text((_GAP, 43), "*: read again at a worse one", _SOFT, _font(10))
    x = _TEXT
    for verdict in (PictureVerdict.READ, PictureVerdict.SEVERAL, PictureVerdict.MISREAD, PictureVerdict.NOT_FOUND):
        _draw_mark(draw, x, 6, verdict)
        draw.text((x + _MARK + 4, 6), verdict.value.replace("_", " "), _INK, _font(11))
        x += 100


def _draw_severities(draw: ImageDraw.ImageDraw, run: Run, left: int) -> None:
    for number, severity in enumerate(run.severities):
        draw.text((left + _place(number), 38), f"severity {severity:g}", _SOFT, _font(11))


def _draw_row(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, run: Run, finding: DamageFinding, corner: tuple[int, int]
) -> None:
    left, top = corner
    kind = KINDS[finding.kind]
    draw.text((left + _GAP, top), kind.name, _INK, _font(14))
    about = _wrapped(f"{kind.what}; worst: {kind.measure(1):g} {kind.unit}", _CHARS)[:_LINES]
    flips = [f"{name} {_flip_text(flip)}" for name, flip in zip(run.decoders, finding.flips, strict=False)]
    lost = _wrapped(f"lost from: {', '.join(flips)}", _CHARS) if flips else []
    for number, line in enumerate([*about, *lost]):
        colour = _SOFT if number < len(about) else _INK
        draw.text((left + _GAP, top + 18 + number * 12), line, colour, _font(10))
    for number, sample in enumerate(finding.samples):
        _draw_picture(sheet, draw, finding.pictures[sample.severity], left + _place(number), top)
        for place, verdict in enumerate(sample.verdicts):
            _draw_mark(draw, left + _place(number) + place * (_MARK + 3), top + _THUMB + 2, verdict)


def _draw_picture(sheet: Image.Image, draw: ImageDraw.ImageDraw, pixels: Pixels, left: int, top: int) -> None:
    picture = Image.fromarray(pixels)
    edge = max(picture.size)
    size = max(1, picture.width * _THUMB // edge), max(1, picture.height * _THUMB // edge)
    draw.rectangle((left, top, left + _THUMB - 1, top + _THUMB - 1), fill=_PAPER)
    method = Image.Resampling.BOX if edge > _THUMB else Image.Resampling.NEAREST
    sheet.paste(picture.resize(size, method), (left + (_THUMB - size[0]) // 2, top + (_THUMB - size[1]) // 2))


def _draw_mark(draw: ImageDraw.ImageDraw, x: int, y: int, verdict: PictureVerdict) -> None:
    """A coloured square with a sign: a tick, a plus, an unequal sign, a cross, a dot."""
    draw.rectangle((x, y, x + _MARK - 1, y + _MARK - 1), fill=_COLOURS[verdict])
    for line in _SIGNS[verdict]:
        draw.line([(x + across, y + down) for across, down in line], fill=_PAPER, width=2)


_SIGNS: Final = {
    PictureVerdict.READ: (((2, 7), (5, 10), (11, 3)),),
    PictureVerdict.SEVERAL: (((2, 6), (11, 6)), ((6, 2), (6, 11))),
    PictureVerdict.MISREAD: (((2, 4), (11, 4)), ((2, 8), (11, 8)), ((3, 11), (10, 2))),
    PictureVerdict.NOT_FOUND: (((3, 3), (10, 10)), ((3, 10), (10, 3))),
    PictureVerdict.CRASHED: (((6, 2), (6, 8)), ((6, 10), (6, 12))),
    PictureVerdict.TIMED_OUT: (((6, 2), (6, 7)), ((6, 7), (10, 7))),
}


def _flip_text(flip: Flip) -> str:
    """The severity of the first loss; a star where a worse picture was read again."""
    if flip.outcome is FlipOutcome.FLIPS:
        return f"{flip.first_lost:.2f}" + ("" if flip.monotonic else "*")
    return "never" if flip.outcome is FlipOutcome.NEVER else "the start"


def _place(number: int) -> int:
    return _TEXT + number * (_THUMB + _GAP)


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
