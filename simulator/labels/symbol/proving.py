"""Encode a text as a QR symbol, draw it, and prove that every decoder of the panel reads the drawing.

"Perfect" codes exist that one decoder or another does not read: zbar misses up to 2 % of random texts. So a symbol
is taken only after it was drawn as PNG and each decoder gave back its bytes. On a miss the next candidate is tried, in
an order that never changes: the encoder's own mask, then masks 0 to 7; the same on each higher error correction level;
then all of it again one version larger, and two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.symbol.decoders import Decoder
from simulator.labels.symbol.encoding import Candidate, candidate_order, encode
from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix
from simulator.labels.symbol.pictures import load_picture
from simulator.labels.symbol.png import draw_png

LEVEL: Final = "M"
"""The lowest error correction level of a label."""
DOTS_PER_MODULE_MIN: Final = 2
"""Below this a printer's dot gain closes the light modules, and decoders start to miss."""
_MM_PER_INCH: Final = 25.4


class DecodeVerdict(StrEnum):
    """What one decoder said about one drawn image."""

    READ = "read"
    MISSED = "missed"
    DIFFERENT = "different"


PRINTER_RESOLUTIONS: Final = (203, 300, 600, 1200, 2400)
"""Dots per inch that printers have, for advice."""
_STEPS: Final = 11
_SIZE_MAX_MM: Final = 1000


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
        if not 1 <= self.size_mm <= _SIZE_MAX_MM:
            raise LabelError(f"size is {self.size_mm} mm: give 1 to {_SIZE_MAX_MM}")
        if not 50 <= self.dpi <= 4800:
            raise LabelError(f"resolution is {self.dpi} dpi: give 50 to 4800")

    def dots_per_module(self, modules_with_quiet_zone: int) -> int:
        """The largest whole number of dots a module may have; 0 when not even one fits."""
        dots = self.size_mm * self.dpi / _MM_PER_INCH
        return int((dots + 1e-6) // modules_with_quiet_zone)

    def to_mm(self, dots: int) -> float:
        """``dots`` of this printer in millimetres."""
        return dots * _MM_PER_INCH / self.dpi


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate that was drawn, and what the panel said.

    Attributes:
        number: its place in the fixed order, from 1.
        candidate: how it was encoded.
        verdicts: decoder name and verdict, in the panel's order.
    """

    number: int
    candidate: Candidate
    verdicts: tuple[tuple[str, DecodeVerdict], ...]

    @property
    def good(self) -> bool:
        """Whether every decoder gave back the text's bytes and nothing else."""
        return all(verdict is DecodeVerdict.READ for _, verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class ProvenSymbol:
    """A symbol that the whole panel read from its drawn image.

    Attributes:
        text: what it says.
        matrix: its modules.
        png: the image that was proven.
        dots_per_module: edge of a module in printer dots.
        module_mm: the same in millimetres.
        taken: the trial that was good.
        missed: the trials before it.
    """

    text: str
    matrix: Matrix
    png: bytes
    dots_per_module: int
    module_mm: float
    taken: Trial
    missed: tuple[Trial, ...]

    @property
    def edge_mm(self) -> float:
        """Edge of the code with its quiet zone."""
        return self.matrix.modules_with_quiet_zone * self.module_mm


def prove(text: str, *, size: PrintSize, panel: Sequence[Decoder]) -> ProvenSymbol:
    """The first candidate that the whole panel reads back from its drawn image.

    Args:
        text: what the code says.
        size: the room and the printer.
        panel: the decoders that must agree; at least one.

    Raises:
        LabelError: the text is too long for any code, or for this size at this resolution.
        UnreadableLabel: no candidate that fits was read by every decoder.
    """
    if not panel:
        raise LabelError("no decoder in the panel: a label is not written unproven")
    missed: list[Trial] = []
    for number, candidate in enumerate(candidate_order(LEVEL), start=1):
        matrix = encode(text, candidate)
        dots = size.dots_per_module(matrix.modules_with_quiet_zone) if matrix else 0
        if number == 1:
            _require_room(text, matrix, size)
        if matrix is None or dots < DOTS_PER_MODULE_MIN:
            continue
        png = draw_png(matrix, dots_per_module=dots, dpi=size.dpi)
        trial = Trial(number, candidate, judge(png, text, panel))
        if trial.good:
            return ProvenSymbol(text, matrix, png, dots, size.to_mm(dots), trial, tuple(missed))
        missed.append(trial)
    raise UnreadableLabel(
        f"no code for {text!r} was read by all of {', '.join(d.name for d in panel)} at {size.size_mm:g} mm and "
        f"{size.dpi} dpi ({len(missed)} candidates tried): give a larger --size-mm or a finer --dpi"
    )


def check_room(text: str, *, size: PrintSize, takes: Callable[[PrintSize], bool] | None = None) -> None:
    """Refuse, without drawing it, a text whose code does not fit.

    Args:
        text: what the code says.
        size: the room and the printer.
        takes: whether a size can be made; the message names only sizes that can.

    Raises:
        LabelError: as :func:`prove`, with the size and the resolution that would fit.
    """
    _require_room(text, encode(text, next(candidate_order(LEVEL))), size, takes)


def _require_room(
    text: str, matrix: Matrix | None, size: PrintSize, takes: Callable[[PrintSize], bool] | None = None
) -> None:
    if matrix is None:
        raise LabelError(
            f"{len(text.encode())} bytes are more than one QR code holds at level {LEVEL}: "
            "shorten the product id or the identifier"
        )
    edge = matrix.modules_with_quiet_zone
    if size.dots_per_module(edge) < DOTS_PER_MODULE_MIN:
        raise LabelError(
            f"{len(text.encode())} bytes need {matrix.modules} modules and a quiet zone of {QUIET_MODULES}, which do "
            f"not fit into {size.size_mm:g} mm at {size.dpi} dpi with {DOTS_PER_MODULE_MIN} dots per module: "
            + _fitting_sizes(edge, size, takes or (lambda _: True))
        )


def _fitting_sizes(edge: int, size: PrintSize, takes: Callable[[PrintSize], bool]) -> str:
    """Advice that is accepted when it is followed."""
    least_mm = _up(edge * DOTS_PER_MODULE_MIN * _MM_PER_INCH / size.dpi, 10)
    sizes_mm = (max(1.0, round(least_mm * (1 + step / 10), 1)) for step in range(_STEPS))
    larger = (PrintSize(size_mm, size.dpi) for size_mm in sizes_mm if size_mm <= _SIZE_MAX_MM)
    finer = (PrintSize(size.size_mm, dpi) for dpi in PRINTER_RESOLUTIONS if dpi > size.dpi)
    advice = [f"--size-mm {fit.size_mm:g}" for fit in itertools.islice(filter(takes, larger), 1)]
    fine = (fit for fit in finer if fit.dots_per_module(edge) >= DOTS_PER_MODULE_MIN)
    advice += [f"--dpi {fit.dpi}" for fit in itertools.islice(filter(takes, fine), 1)]
    return f"{' or '.join(advice)} would fit" if advice else "shorten the product id or the identifier"


def _up(value: float, steps: int) -> float:
    """``value`` rounded up to one part in ``steps``."""
    return -(-(value - 1e-9) * steps // 1) / steps


def judge(png: bytes, text: str, panel: Sequence[Decoder]) -> tuple[tuple[str, DecodeVerdict], ...]:
    """What each decoder says about a drawn image that should hold exactly ``text``."""
    pixels = load_picture(png)
    return tuple((decoder.name, _verdict(decoder.read(pixels), text)) for decoder in panel)


def _verdict(found: tuple[str, ...], expected: str) -> DecodeVerdict:
    if not found:
        return DecodeVerdict.MISSED
    return DecodeVerdict.READ if found == (expected,) else DecodeVerdict.DIFFERENT
