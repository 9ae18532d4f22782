"""The table of output formats: what a batch can be written as, and how each is drawn.

A format is one of two things. A :class:`LabelFormat` makes one file for each label, from the symbol that was just
proven; it may run in any process. A :class:`BatchFormat` makes files of all labels together, once every label is
proven; labels come as a stream, so that a batch of 100,000 needs no more memory than a small one. A new format is an
entry in :data:`FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.printing.options import PrintOptions
from simulator.labels.printing.sheet import Grid, SheetLabel, draw_sheet, fit_grid
from simulator.labels.symbol.proving import PrintSize, ProvenSymbol
from simulator.labels.symbol.svg import draw_svg

SHEET_STEM: Final = "sheet"


@dataclass(frozen=True, slots=True)
class BatchSetup:
    """What all labels of a batch share.

    Attributes:
        product_id: the product.
        size: the room for a code, and the printer.
        printing: the options of printed formats.
        count: labels in the batch.
        first: the first label's identifier.
        last: the last label's identifier.
    """

    product_id: str
    size: PrintSize
    printing: PrintOptions
    count: int
    first: str
    last: str

    @property
    def title(self) -> str:
        """What names the batch on paper."""
        return f"{self.product_id}: {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """One label that is to be made.

    Attributes:
        index: its place in the batch, from 0.
        serial: the number that its identifier was made from.
        identifier: the ``device_identifier``.
        product_id: the product it belongs to.
        name: a line for people, printed beside the code; may be empty.
        text: what the code says.
    """

    index: int
    serial: int
    identifier: str
    product_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class BatchFile:
    """One file of a format that draws all labels together.

    Attributes:
        name: in the batch's folder; begins with one of the format's ``stems``.
        data: its bytes, in pieces.
    """

    name: str
    data: Iterator[bytes]


def _fits(setup: BatchSetup) -> None:
    """Every size that a code may have is good for this format."""
    del setup


def _no_place(setup: BatchSetup, index: int) -> Mapping[str, Any]:
    del setup, index
    return {}


@dataclass(frozen=True, slots=True)
class LabelFormat:
    """A format with one file per label.

    Attributes:
        ending: of the file's name, such as ``.png``.
        draw: the file's bytes; equal arguments give equal bytes.
        check: refuses a setup that this format cannot draw, before anything is made.
    """

    ending: str
    draw: Callable[[BatchSetup, LabelOrder, ProvenSymbol], bytes]
    check: Callable[[BatchSetup], None] = _fits


@dataclass(frozen=True, slots=True)
class BatchFormat:
    """A format that draws all labels together.

    Attributes:
        stems: what the names of its files begin with.
        ending: what they end with.
        draw: the files, from the labels in their order, each label handed over once.
        place: members that a label's manifest entry gets from its place, such as ``{"page": 3}``.
        check: refuses a setup that this format cannot draw, before anything is made.
    """

    stems: tuple[str, ...]
    ending: str
    draw: Callable[[BatchSetup, Iterator[MadeLabel]], Iterator[BatchFile]]
    place: Callable[[BatchSetup, int], Mapping[str, Any]] = _no_place
    check: Callable[[BatchSetup], None] = _fits


def _png(setup: BatchSetup, order: LabelOrder, symbol: ProvenSymbol) -> bytes:
    del setup, order
    return symbol.png


def _svg(setup: BatchSetup, order: LabelOrder, symbol: ProvenSymbol) -> bytes:
    del setup
    return draw_svg(symbol.matrix, module_mm=symbol.module_mm, title=order.identifier)


def _grid(setup: BatchSetup) -> Grid:
    return fit_grid(setup.printing.paper, setup.size.size_mm)


def _sheet(setup: BatchSetup, labels: Iterator[MadeLabel]) -> Iterator[BatchFile]:
    drawn = [
        SheetLabel(label.identifier, label.name or label.product_id, label.matrix, label.module_mm) for label in labels
    ]
    yield BatchFile(SHEET_STEM + ".pdf", iter([draw_sheet(drawn, grid=_grid(setup), title=setup.title)]))


def _sheet_place(setup: BatchSetup, index: int) -> Mapping[str, Any]:
    return {"page": _grid(setup).cell(index)[0] + 1}


def _sheet_fits(setup: BatchSetup) -> None:
    _grid(setup)


FORMATS: Final[Mapping[str, LabelFormat | BatchFormat]] = MappingProxyType(
    {
        "png": LabelFormat(".png", _png),
        "svg": LabelFormat(".svg", _svg),
        "pdf": BatchFormat((SHEET_STEM,), ".pdf", _sheet, _sheet_place, _sheet_fits),
    }
)
"""Every format by the word that ``--formats`` takes."""

DEFAULT_FORMATS: Final = ("png", "svg", "pdf")
