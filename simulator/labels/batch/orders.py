"""What a batch is made from: counted labels, with or without a serial ledger, or the rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.labels.batch.rows import read_table, rows_sha256
from simulator.labels.errors import LabelError
from simulator.labels.payload import IdentifierTemplate
from simulator.labels.symbol.proving import PrintSize, check_room

WriteText = Callable[[str, str], str]
"""Product id and device identifier in, the text of the code out; raises :class:`LabelError`."""


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """One label that is to be made.

    Attributes:
        serial: the number that its identifier was made from; of a table its place there, from 1.
        identifier: the ``device_identifier``.
        product_id: the product it belongs to.
        name: a line for people, printed beside the code; may be empty.
        text: what the code says.
    """

    serial: int
    identifier: str
    product_id: str
    name: str
    text: str

    @property
    def printed(self) -> tuple[str, ...]:
        """What is printed beside the code, line by line; the first is large."""
        return tuple(line for line in (self.identifier, self.name, self.product_id) if line)


@dataclass(frozen=True, slots=True)
class Orders:
    """The labels that are to be made.

    Attributes:
        labels: at least one.
        described: the members of the manifest's ``batch`` that say where they come from; equal input has equal ones.
        notes: what a user has to know.
    """

    labels: tuple[LabelOrder, ...]
    described: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def longest(self) -> str:
        """The longest text of any code, in bytes."""
        return max((label.text for label in self.labels), key=lambda text: len(text.encode()))

    @property
    def samples(self) -> tuple[LabelOrder, ...]:
        """The labels with the longest words to print, by which a format sees beforehand whether all of it fits."""
        by_part = (max(self.labels, key=lambda label: len(getattr(label, part))) for part in ("identifier", "name"))
        return (*by_part, max(self.labels, key=lambda label: sum(map(len, label.printed))))


def counted(
    *, product_id: str | None, count: int, template: str, first_serial: int, write_text: WriteText, reservation: int = 0
) -> Orders:
    """``count`` labels from a template.

    Raises:
        LabelError: a bad count, serial or template, or no product.
    """
    if not product_id:
        raise LabelError("the product id is empty: give --product-id, as POST /products answered it")
    labels = tuple(
        LabelOrder(serial, identifier, product_id, "", write_text(product_id, identifier))
        for serial, identifier in IdentifierTemplate(template).identifiers(first_serial, count)
    )
    described = {"product_id": product_id, "count": count, "template": template, "first_serial": first_serial}
    return Orders(labels, {**described, **({"reservation": reservation} if reservation else {})})


def from_table(source: Path, *, product_id: str | None, write_text: WriteText, size: PrintSize) -> Orders:
    """The labels of a table.

    Raises:
        BadRows: there are bad rows; the message lists all of them.
        LabelError: the table cannot be read or has no row.
    """
    fits: set[int] = set()

    def check(product: str, identifier: str) -> None:
        """Refuse what no label can carry; texts of one length are alike, so one of them is encoded."""
        text = write_text(product, identifier)
        length = len(text.encode())
        if length not in fits:
            check_room(text, size=size)
            fits.add(length)

    table = read_table(source, product_id=product_id, check=check)
    rows = table.usable(source)
    products = sorted({row.product_id for row in rows})
    labels = tuple(
        LabelOrder(
            place, row.device_identifier, row.product_id, row.name, write_text(row.product_id, row.device_identifier)
        )
        for place, row in enumerate(rows, start=1)
    )
    described = {
        "product_id": products[0] if len(products) == 1 else products,
        "count": len(rows),
        "rows_sha256": rows_sha256(rows),
    }
    return Orders(labels, described, table.notes)
