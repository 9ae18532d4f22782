"""The table of output formats: what a batch can be written as, and how each is drawn.

A format is one of two things. A :class:`LabelFormat` makes one file for each label, from the symbol that was just
proven; it may run in any process. A :class:`BatchFormat` makes one file of all labels, once every label is proven. A
new format is an entry in :data:`FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from simulator.labels.batch.manifest import MadeLabel
from simulator.labels.batch.orders import LabelOrder
from simulator.labels.printing.dots import DotLabel, measure_dots
from simulator.labels.printing.layout import lay_out
from simulator.labels.printing.options import PrintOptions
from simulator.labels.printing.sheet import SheetLabel, draw_sheet, printable, sheet_layout
from simulator.labels.printing.zpl import draw_zpl, require_zebra
from simulator.labels.symbol.proving import PrintSize, ProvenSymbol
from simulator.labels.symbol.svg import draw_svg


@dataclass(frozen=True, slots=True)
class BatchSetup:
    """What all labels of a batch share.

    Attributes:
        title: what names the batch on paper.
        size: the room for a code, and the printer.
        printing: the options of printed formats.
        samples: the labels with the most text on them, by which a format sees beforehand whether all of it fits.
    """

    title: str
    size: PrintSize
    printing: PrintOptions
    samples: tuple[LabelOrder, ...]


@dataclass(frozen=True, slots=True)
class LabelFormat:
    """A format with one file per label.

    Attributes:
        ending: of the file's name, such as ``.png``.
        draw: the file's bytes; equal arguments give equal bytes.
    """

    ending: str
    draw: Callable[[LabelOrder, ProvenSymbol], bytes]


@dataclass(frozen=True, slots=True)
class BatchFormat:
    """A format that draws all labels into one file.

    Attributes:
        name: of the file.
        draw: its bytes, from the labels in their order.
        check: refuses a setup that this format cannot draw, before anything is made.
    """

    name: str
    draw: Callable[[BatchSetup, Sequence[MadeLabel]], bytes]
    check: Callable[[BatchSetup], None]


def _png(order: LabelOrder, symbol: ProvenSymbol) -> bytes:
    del order
    return symbol.png


def _svg(order: LabelOrder, symbol: ProvenSymbol) -> bytes:
    return draw_svg(symbol.matrix, module_mm=symbol.module_mm, title=order.identifier)


def _sheet(setup: BatchSetup, labels: Sequence[MadeLabel]) -> bytes:
    grid = setup.printing.sheet_grid(setup.size.size_mm)
    drawn = [SheetLabel(label.order.printed, label.matrix, label.module_mm) for label in labels]
    return draw_sheet(drawn, grid=grid, title=setup.title)


def _sheet_fits(setup: BatchSetup) -> None:
    grid = setup.printing.sheet_grid(setup.size.size_mm)
    for order in setup.samples:
        sheet_layout(grid, setup.size.size_mm, order.printed)


def _zpl(setup: BatchSetup, labels: Sequence[MadeLabel]) -> bytes:
    room = setup.printing.zebra_room(setup.size.size_mm)
    drawn = (
        DotLabel(label.order.identifier, label.order.printed, label.matrix, label.dots_per_module) for label in labels
    )
    return b"".join(draw_zpl(label, room=room, dpi=setup.size.dpi) for label in drawn)


def _zpl_fits(setup: BatchSetup) -> None:
    require_zebra(setup.size.dpi)
    room = setup.printing.zebra_room(setup.size.size_mm)
    for order in setup.samples:
        lay_out(room, setup.size.size_mm, [printable(line) for line in order.printed], measure_dots(setup.size.dpi))


FORMATS: Final[Mapping[str, LabelFormat | BatchFormat]] = MappingProxyType(
    {
        "png": LabelFormat(".png", _png),
        "svg": LabelFormat(".svg", _svg),
        "pdf": BatchFormat("sheet.pdf", _sheet, _sheet_fits),
        "zpl": BatchFormat("labels.zpl", _zpl, _zpl_fits),
    }
)
"""Every format by the word that ``--formats`` takes."""

ENDINGS: Final = tuple(form.ending if isinstance(form, LabelFormat) else form.name for form in FORMATS.values())
"""What the names of a batch's files end with."""
DEFAULT_FORMATS: Final = ("png", "svg", "pdf")


def check_formats(words: Iterable[str], setup: BatchSetup) -> None:
    """Refuse what one of these formats cannot draw.

    Raises:
        LabelError: with what would do.
    """
    for word in words:
        form = FORMATS[word]
        if isinstance(form, BatchFormat):
            form.check(setup)
