"""What a decoder says about a picture, measured and never assumed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from simulator.labels.damage.pixels import Pixels
from simulator.labels.symbol.decoders import Decoder, GrayImage, ask


class PictureVerdict(StrEnum):
    """What one decoder said about one picture of a label."""

    READ = "read"
    """The label's text and nothing else."""
    SEVERAL = "several"
    """The label's text, and other texts with it."""
    MISREAD = "misread"
    """Only texts that are not the label's."""
    NOT_FOUND = "not_found"
    CRASHED = "crashed"
    """The decoder failed instead of answering."""
    TIMED_OUT = "timed_out"
    """The decoder gave no answer in time."""

    @property
    def legible(self) -> bool:
        """Whether the label's text was among what was read."""
        return self in {PictureVerdict.READ, PictureVerdict.SEVERAL}


Verdicts = tuple[PictureVerdict, ...]
"""One for each decoder, in the panel's order."""


def to_image(pixels: Pixels) -> GrayImage:
    """A picture as decoders take it."""
    height, width = pixels.shape
    return GrayImage(width, height, pixels.tobytes())


def judge(pixels: Pixels, text: str, panel: Sequence[Decoder]) -> Verdicts:
    """What each decoder says about a picture that shows a label with this text."""
    image = to_image(pixels)
    return tuple(_verdict(decoder, image, text.encode()) for decoder in panel)


def _verdict(decoder: Decoder, image: GrayImage, expected: bytes) -> PictureVerdict:
    try:
        found = set(ask(decoder, image))
    except Exception:  # noqa: BLE001 - a decoder is foreign code at a picture made to confuse it: its failure is a finding
        return PictureVerdict.CRASHED
    if not found:
        return PictureVerdict.NOT_FOUND
    if expected not in found:
        return PictureVerdict.MISREAD
    return PictureVerdict.READ if len(found) == 1 else PictureVerdict.SEVERAL
