"""How well a code may print: an estimate in the words of ISO/IEC 15415, made before anything is printed.

It is arithmetic over the drawn symbol and a few assumptions about printer and paper. A grade comes out of measuring a
printed symbol with a verifier; nothing here replaces that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from simulator.labels.errors import LabelError
from simulator.labels.symbol.matrix import QUIET_MODULES

_MM_PER_INCH: Final = 25.4
_APERTURE: Final = 0.8
_STEPS: Final = 200
_CONTRAST_GRADES: Final = (0.70, 0.55, 0.40, 0.20)
_MODULATION_GRADES: Final = (0.50, 0.40, 0.30, 0.20)
_AXIAL_GRADES: Final = (0.06, 0.08, 0.10, 0.12)
_LETTERS: Final = "FDCBA"
_DISTANCE_PER_MODULE: Final = 500.0


@dataclass(frozen=True, slots=True)
class PrintAssumptions:
    """What is assumed of the printed label; measure yours and say so.

    Attributes:
        growth_um: micrometres by which a dark bar comes out wider than drawn, both edges together; ``None``: three
            quarters of a printer dot, a cautious figure for thermal and laser printers.
        contrast: reflectance of the label minus that of the print, 0 to 1 (0.75: black on white matt paper).

    Raises:
        LabelError: a figure out of range.
    """

    growth_um: float | None = None
    contrast: float = 0.75

    def __post_init__(self) -> None:
        if self.growth_um is not None and not -1000 <= self.growth_um <= 1000:
            raise LabelError(f"--print-growth-um is {self.growth_um:g}: give -1000 to 1000")
        if not 0 < self.contrast <= 1:
            raise LabelError(f"--contrast is {self.contrast:g}: give more than 0, at most 1")


@dataclass(frozen=True, slots=True)
class PrintEstimate:
    """What is to be expected of one code. Grades go from 4 (A) to 0 (F).

    Attributes:
        module_mm: the X dimension.
        print_growth: growth of a dark bar as a share of a module.
        symbol_contrast: difference of reflectance, light minus dark.
        contrast_grade: its grade.
        modulation: of a single light module among dark ones, which growth narrows.
        modulation_grade: its grade.
        axial_nonuniformity: difference of the module's width and height as a share of their mean.
        axial_grade: its grade.
        quiet_zone_modules: white on each side; 4 are required.
        distance_mm: about as far as a telephone's camera reads it.
    """

    module_mm: float
    print_growth: float
    symbol_contrast: float
    contrast_grade: int
    modulation: float
    modulation_grade: int
    axial_nonuniformity: float
    axial_grade: int
    quiet_zone_modules: int
    distance_mm: float

    @property
    def grade(self) -> int:
        """The lowest of the grades, as the standard takes it; 0 where the quiet zone is too narrow."""
        if self.quiet_zone_modules < QUIET_MODULES:
            return 0
        return min(self.contrast_grade, self.modulation_grade, self.axial_grade)

    @property
    def letter(self) -> str:
        """The grade as a letter, A to F."""
        return _LETTERS[self.grade]

    def document(self) -> dict[str, Any]:
        """The estimate as JSON members, rounded."""
        return {
            "is": "estimate, not a measurement; words of ISO/IEC 15415",
            "grade": f"{self.grade} ({self.letter})",
            "module_mm": round(self.module_mm, 4),
            "print_growth": round(self.print_growth, 3),
            "symbol_contrast": round(self.symbol_contrast, 3),
            "symbol_contrast_grade": self.contrast_grade,
            "modulation": round(self.modulation, 3),
            "modulation_grade": self.modulation_grade,
            "axial_nonuniformity": round(self.axial_nonuniformity, 4),
            "axial_nonuniformity_grade": self.axial_grade,
            "quiet_zone_modules": self.quiet_zone_modules,
            "reading_distance_mm": round(self.distance_mm),
        }

    def sentence(self) -> str:
        """The estimate in one line for a summary."""
        return (
            f"{self.letter} by ISO/IEC 15415's parameters, not measured: print growth {self.print_growth:.0%} of a "
            f"module, contrast {self.symbol_contrast:.0%}, module {self.module_mm:.2f} mm, read from up to about "
            f"{self.distance_mm / 10:.0f} cm"
        )


def estimate(
    *,
    dots_per_module: int,
    dpi: int,
    assumed: PrintAssumptions,
    dots_across: int | None = None,
) -> PrintEstimate:
    """Estimate how a code will print.

    Args:
        dots_per_module: the height of a module in printer dots.
        dpi: the printer's resolution.
        assumed: of printer and paper.
        dots_across: its width, where that differs.
    """
    height = dots_per_module * _MM_PER_INCH / dpi
    width = (dots_across or dots_per_module) * _MM_PER_INCH / dpi
    mean = (width + height) / 2
    growth_mm = 0.75 * _MM_PER_INCH / dpi if assumed.growth_um is None else assumed.growth_um / 1000
    growth = growth_mm / min(width, height)
    modulation = _modulation(round(abs(growth), 4))
    axial = abs(width - height) / mean
    return PrintEstimate(
        module_mm=mean,
        print_growth=growth,
        symbol_contrast=assumed.contrast,
        contrast_grade=_at_least(assumed.contrast, _CONTRAST_GRADES),
        modulation=modulation,
        modulation_grade=_at_least(modulation, _MODULATION_GRADES),
        axial_nonuniformity=axial,
        axial_grade=_at_most(axial, _AXIAL_GRADES),
        quiet_zone_modules=QUIET_MODULES,
        distance_mm=mean * _DISTANCE_PER_MODULE,
    )


def _at_least(value: float, bounds: tuple[float, ...]) -> int:
    return next((4 - index for index, bound in enumerate(bounds) if value >= bound - 1e-9), 0)


def _at_most(value: float, bounds: tuple[float, ...]) -> int:
    return next((4 - index for index, bound in enumerate(bounds) if value <= bound + 1e-9), 0)


@cache
def _modulation(growth: float) -> float:
    """Modulation of the worst module: a single one that its neighbours of the other colour narrow on all sides.

    ISO/IEC 15415, 7.8.4: ``2 |R - GT| / SC``, with the threshold GT in the middle and R what a round aperture of 0.8
    modules sees at the module's centre.
    """
    half = (1 - growth) / 2
    if half <= 0:
        return 0.0
    radius = _APERTURE / 2
    seen = 0.0
    step = radius / _STEPS
    for index in range(_STEPS):
        x = (index + 0.5) * step
        if x < half:
            seen += min(half, math.sqrt(radius * radius - x * x)) * step
    share = 4 * seen / (math.pi * radius * radius)
    return max(0.0, min(1.0, 2 * (share - 0.5)))
