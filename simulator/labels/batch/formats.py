"""The table of output formats: what a batch can be written as, and how each is drawn.

A format is one of two things. A :class:`LabelFormat` makes one file for each label, from the symbol that was just
proven; it may run in any process. A :class:`BatchFormat` makes files of all labels together, once every label is
proven; labels come as a stream, so that a batch of 100,000 needs no more memory than a small one. A new format is an
entry in :data:`FORMATS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.batch.printed_text import printed_lines
from simulator.labels.printing.brother import begin_job, draw_tape, page_commands, require_brother
from simulator.labels.printing.contact import ContactLabel, contact_sheet
from simulator.labels.printing.dots import DotLabel, measure_dots
from simulator.labels.printing.grid import Grid
from simulator.labels.printing.layout import lay_out
from simulator.labels.printing.options import PrintOptions
from simulator.labels.printing.sheet import PageCount, SheetLabel, draw_sheet, printable, sheet_layout
from simulator.labels.printing.zpl import draw_zpl, require_zebra
from simulator.labels.symbol.proving import PrintSize, ProvenSymbol
from simulator.labels.symbol.svg import draw_svg

SHEET_STEM: Final = "sheet"
SHEET_PAGES_MAX: Final = 250
ROLL_STEM: Final = "labels"
CONTACT_STEM: Final = "contact"


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
        samples: the labels with the most text on them, by which a format sees beforehand whether all of it fits.
    """

    product_id: str
    size: PrintSize
    printing: PrintOptions
    count: int
    first: str
    last: str
    samples: tuple[LabelOrder, ...]

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
        name: in the batch's folder.
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
        ending: of its files' names.
        draw: the files, from the labels in their order, each label handed over once.
        place: members that a label's manifest entry gets from its place, such as ``{"page": 3}``.
        check: refuses a setup that this format cannot draw, before anything is made.
    """

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
    return setup.printing.sheet_grid(setup.size.size_mm)


def _sheet(setup: BatchSetup, labels: Iterator[MadeLabel]) -> Iterator[BatchFile]:
    """The sheets, in files of at most 250 pages: a viewer opens them, and so few are held in memory."""
    grid, printing = _grid(setup), setup.printing
    total = -(-(setup.count + printing.placing.skip_cells) // grid.per_page)
    drawn = (SheetLabel(printed_lines(setup.printing.text, label), label.matrix, label.module_mm) for label in labels)
    for number, first_page in enumerate(range(0, total, SHEET_PAGES_MAX), start=1):
        placing = printing.placing if number == 1 else replace(printing.placing, skip_cells=0)
        some = list(itertools.islice(drawn, SHEET_PAGES_MAX * grid.per_page - placing.skip_cells))
        name = f"{SHEET_STEM}-{number:04d}.pdf" if total > SHEET_PAGES_MAX else f"{SHEET_STEM}.pdf"
        sheet = draw_sheet(
            some,
            grid=grid,
            title=setup.title,
            placing=placing,
            marks=printing.marks,
            pages=PageCount(first_page + 1, total),
        )
        yield BatchFile(name, iter([sheet]))


def _sheet_place(setup: BatchSetup, index: int) -> Mapping[str, Any]:
    return {"page": _grid(setup).cell(index + setup.printing.placing.skip_cells)[0] + 1}


def _sheet_fits(setup: BatchSetup) -> None:
    grid = _grid(setup)
    for lines in _sample_lines(setup):
        sheet_layout(grid, setup.size.size_mm, lines)


def _zpl(setup: BatchSetup, labels: Iterator[MadeLabel]) -> Iterator[BatchFile]:
    room, printing = setup.printing.zebra_room(setup.size.size_mm), setup.printing
    drawn = (
        draw_zpl(_dots(setup, label), room=room, dpi=setup.size.dpi, quantity=printing.quantity) for label in labels
    )
    yield BatchFile(ROLL_STEM + ".zpl", drawn)


def _zpl_fits(setup: BatchSetup) -> None:
    require_zebra(setup.size.dpi, setup.printing.quantity)
    room = setup.printing.zebra_room(setup.size.size_mm)
    for lines in _sample_lines(setup):
        lay_out(room, setup.size.size_mm, [printable(line) for line in lines], measure_dots(setup.size.dpi))


def _brother(setup: BatchSetup, labels: Iterator[MadeLabel]) -> Iterator[BatchFile]:
    tape = setup.printing.tape

    def commands() -> Iterator[bytes]:
        yield begin_job()
        for index, label in enumerate(labels):
            bitmap = draw_tape(_dots(setup, label), tape)
            yield page_commands(bitmap, tape, first=index == 0, last=index == setup.count - 1)

    yield BatchFile(f"{ROLL_STEM}-{tape.width_mm}mm.prn", commands())


def _brother_fits(setup: BatchSetup) -> None:
    require_brother(setup.size.dpi, setup.printing.tape, setup.size.size_mm)
    for _ in _sample_lines(setup):
        pass  # any text fits on tape as long as it takes; unknown columns are refused here


def _contact(setup: BatchSetup, labels: Iterator[MadeLabel]) -> Iterator[BatchFile]:
    facts = (
        ("Product", setup.product_id),
        ("Labels", f"{setup.count}: {setup.first} to {setup.last}"),
        ("Size", f"at most {setup.size.size_mm:g} mm with the quiet zone, at {setup.size.dpi} dpi"),
    )
    shown = (
        ContactLabel(
            lines=printed_lines(setup.printing.text, label) or (label.identifier,),
            matrix=label.matrix,
            edge_mm=label.matrix.modules_with_quiet_zone * label.module_mm,
            verdicts=tuple((name, verdict.value) for name, verdict in label.taken.verdicts),
            candidate=label.taken.number,
            missed=len(label.missed),
            estimated_grade=label.estimate.letter,
        )
        for label in labels
    )
    yield BatchFile(CONTACT_STEM + ".html", contact_sheet(shown, title=setup.title, count=setup.count, facts=facts))


def _dots(setup: BatchSetup, label: MadeLabel) -> DotLabel:
    return DotLabel(label.identifier, printed_lines(setup.printing.text, label), label.matrix, label.dots_per_module)


def _sample_lines(setup: BatchSetup) -> Iterator[tuple[str, ...]]:
    """The longest texts, to refuse early what cannot fit."""
    return (printed_lines(setup.printing.text, label) for label in setup.samples)


FORMATS: Final[Mapping[str, LabelFormat | BatchFormat]] = MappingProxyType(
    {
        "png": LabelFormat(".png", _png),
        "svg": LabelFormat(".svg", _svg),
        "pdf": BatchFormat(".pdf", _sheet, _sheet_place, _sheet_fits),
        "zpl": BatchFormat(".zpl", _zpl, check=_zpl_fits),
        "brother": BatchFormat(".prn", _brother, check=_brother_fits),
        "html": BatchFormat(".html", _contact),
    }
)
"""Every format by the word that ``--formats`` takes."""

DEFAULT_FORMATS: Final = ("png", "svg", "pdf")
