"""A contact sheet: one HTML file with a small picture of every label, its text and who read it. Opens from disk."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from simulator.labels.symbol.matrix import Matrix
from simulator.labels.symbol.png import draw_png

_PICTURE_DOTS: Final = 2
_BUFFERED: Final = 200


@dataclass(frozen=True, slots=True)
class ContactLabel:
    """One label as the contact sheet shows it.

    Attributes:
        lines: the text on the label.
        matrix: the code.
        edge_mm: edge of the code with its quiet zone.
        verdicts: decoder and what it said.
        candidate: which candidate was taken, from 1.
        missed: how many candidates were drawn before it and missed.
        estimated_grade: how it may print, A to F.
    """

    lines: tuple[str, ...]
    matrix: Matrix
    edge_mm: float
    verdicts: tuple[tuple[str, str], ...]
    candidate: int
    missed: int
    estimated_grade: str

    @property
    def picture(self) -> str:
        """The code as an address that holds the picture itself."""
        png = draw_png(self.matrix, dots_per_module=_PICTURE_DOTS, dpi=300)
        return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def contact_sheet(
    labels: Iterable[ContactLabel], *, title: str, count: int, facts: tuple[tuple[str, str], ...]
) -> Iterator[bytes]:
    """The page in pieces, UTF-8; labels are taken one at a time, so a page of 100,000 needs little memory.

    Args:
        labels: in their order.
        title: names the batch.
        count: how many labels there are.
        facts: name and value of what all labels share.
    """
    stream = _environment().get_template("contact.html.j2").stream(labels=labels, title=title, count=count, facts=facts)
    stream.enable_buffering(_BUFFERED)
    for piece in stream:
        yield piece.encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("simulator.labels.printing"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
