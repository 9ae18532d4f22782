"""What a decoder says about a picture, measured and never assumed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from simulator.labels.damage.pixels import Pixels
from simulator.labels.symbol.decoders import Decoder


class PictureVerdict(StrEnum):
    """What one decoder said about one picture of a label."""

    READ = "read"
    """The label's text and nothing else."""
    SEVERAL = "several"
    """The label's text, and other texts with it."""
    MISREAD = "misread"
    """Only texts that are not the label's."""
    NOT_FOUND = "not_found"

    @property
    def legible(self) -> bool:
        """Whether the label's text was among what was read."""
        return self in {PictureVerdict.READ, PictureVerdict.SEVERAL}


Verdicts = tuple[PictureVerdict, ...]
"""One for each decoder, in the panel's order."""


def judge(pixels: Pixels, text: str, panel: Sequence[Decoder]) -> Verdicts:
    """What each decoder says about a picture that shows a label with this text."""
    return tuple(_verdict(set(decoder.read(pixels)), text) for decoder in panel)


def _verdict(found: set[str], expected: str) -> PictureVerdict:
    if not found:
        return PictureVerdict.NOT_FOUND
    if expected not in found:
        return PictureVerdict.MISREAD
    return PictureVerdict.READ if len(found) == 1 else PictureVerdict.SEVERAL
