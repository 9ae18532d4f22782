"""What a batch is made from: counted labels, with or without a serial ledger, or the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from simulator.labels.batch.formats import LabelOrder
from simulator.labels.batch.ledger import Ledger, Reservation
from simulator.labels.batch.rows import DeviceRow, read_table, rows_sha256
from simulator.labels.errors import LabelError
from simulator.labels.payload import IdentifierTemplate
from simulator.labels.symbol.proving import PrintSize, check_room

WriteText = Callable[[str, str], str]
"""Product id and device identifier in, the text of the code out; raises :class:`LabelError`."""


class Orders(Protocol):
    """The labels that are to be made."""

    @property
    def count(self) -> int:
        """How many, at least 1."""
        ...

    def described(self) -> dict[str, Any]:
        """The members of the manifest's ``batch`` that say where the labels come from."""
        ...

    def label(self, index: int) -> LabelOrder:
        """The label at this place."""
        ...

    def longest(self) -> str:
        """The longest text of any code, in bytes."""
        ...

    def samples(self) -> tuple[LabelOrder, ...]:
        """Some labels, with those among them that carry the longest words to print."""
        ...


@dataclass(frozen=True, slots=True)
class SerialOrders:
    """Labels that are counted.

    Attributes:
        product_id: on every label.
        template: makes the identifier of a serial.
        first_serial: the first label's serial.
        count: how many.
        write_text: makes the text of a code.
        reservation: the number of the reservation in the serial ledger; 0 without a ledger.
    """

    product_id: str
    template: IdentifierTemplate
    first_serial: int
    count: int
    write_text: WriteText
    reservation: int = 0

    def described(self) -> dict[str, Any]:
        """The members of the manifest's ``batch`` that say where the labels come from. See :class:`Orders`."""
        return {
            "product_id": self.product_id,
            "count": self.count,
            "template": self.template.pattern,
            "first_serial": self.first_serial,
            **({"reservation": self.reservation} if self.reservation else {}),
        }

    def label(self, index: int) -> LabelOrder:
        """The label at this place. See :class:`Orders`."""
        serial = self.first_serial + index
        identifier = self.template.identifier(serial)
        text = self.write_text(self.product_id, identifier)
        return LabelOrder(index, serial, identifier, self.product_id, "", text)

    def longest(self) -> str:
        """The longest text of any code, in bytes.

        See :class:`Orders`; digits only get more, so it is the first or the last.
        """
        return max((self.label(0).text, self.label(self.count - 1).text), key=size_bytes)

    def samples(self) -> tuple[LabelOrder, ...]:
        """Some labels, with those among them that carry the longest words to print. See :class:`Orders`."""
        return self.label(0), self.label(self.count - 1)


@dataclass(frozen=True, slots=True)
class RowOrders:
    """Labels of a table.

    Attributes:
        rows: checked, in the table's order; at least one.
        write_text: makes the text of a code.
    """

    rows: Sequence[DeviceRow]
    write_text: WriteText

    @property
    def count(self) -> int:
        """How many, at least 1. See :class:`Orders`."""
        return len(self.rows)

    def described(self) -> dict[str, Any]:
        """The members of the manifest's ``batch`` that say where the labels come from.

        See :class:`Orders`; equal rows are equal input, whatever file they stood in.
        """
        products = sorted({row.product_id for row in self.rows})
        return {
            "product_id": products[0] if len(products) == 1 else products,
            "count": self.count,
            "rows_sha256": rows_sha256(self.rows),
        }

    def label(self, index: int) -> LabelOrder:
        """The label at this place. See :class:`Orders`; the serial is the place in the table, from 1."""
        row = self.rows[index]
        text = self.write_text(row.product_id, row.device_identifier)
        return LabelOrder(index, index + 1, row.device_identifier, row.product_id, row.name, text)

    def longest(self) -> str:
        """The longest text of any code, in bytes. See :class:`Orders`."""
        return max((self.label(index).text for index in range(self.count)), key=size_bytes)

    def samples(self) -> tuple[LabelOrder, ...]:
        """Some labels, with those among them that carry the longest words to print. See :class:`Orders`."""
        printed = [(row.device_identifier, row.product_id, row.name) for row in self.rows]
        longest = {max(range(self.count), key=lambda index: len(printed[index][part])) for part in range(3)}
        longest.add(max(range(self.count), key=lambda index: sum(map(len, printed[index]))))
        return tuple(map(self.label, sorted(longest)))


def size_bytes(text: str) -> int:
    """What a text takes in a code."""
    return len(text.encode())


def in_portions(labels: Iterator[LabelOrder], *, labels_max: int, bytes_max: int) -> Iterator[list[LabelOrder]]:
    """Portions for a worker: small enough for a pipe's buffer, large enough to be worth the way."""
    portion: list[LabelOrder] = []
    total = 0
    for label in labels:
        portion.append(label)
        total += size_bytes(label.text)
        if len(portion) >= labels_max or total >= bytes_max:
            yield portion
            portion, total = [], 0
    if portion:
        yield portion


def counted(
    *, product_id: str | None, count: int, template: str, first_serial: int | None, write_text: WriteText
) -> SerialOrders:
    """``count`` labels from a template.

    Raises:
        LabelError: a bad count, serial or template, or no product.
    """
    if not product_id:
        raise LabelError("the product id is empty: give --product-id, as POST /products answered it")
    first = 1 if first_serial is None else first_serial
    pattern = IdentifierTemplate(template)
    pattern.identifiers(first, count)  # which checks them
    return SerialOrders(product_id, pattern, first, count, write_text)


def reserved(
    ledger: Ledger, orders: SerialOrders, folder: Path, first_serial: int | None
) -> tuple[SerialOrders, Reservation, tuple[str, ...]]:
    """Reserve serials in the ledger for these labels; returns the labels with them, and notes for the user.

    Raises:
        LabelError: see :meth:`Ledger.take`; or the template has no serial.
    """
    if not orders.template.varies:
        raise LabelError(f"template {orders.template.pattern!r} has no serial to keep a ledger of: add {{serial:06d}}")
    taken = ledger.take(
        product_id=orders.product_id,
        template=orders.template.pattern,
        count=orders.count,
        folder=folder,
        first_serial=first_serial,
    )
    own = taken.reservation
    serials = SerialOrders(
        orders.product_id, orders.template, own.first_serial, orders.count, orders.write_text, own.number
    )
    notes = [taken.note] if taken.note else []
    if taken.again:
        notes.append(f"serials {own.first_serial} to {own.next_serial - 1} were reserved for this folder already")
    return serials, own, tuple(notes)


def from_table(
    source: Path, *, product_id: str | None, skip_bad: bool, write_text: WriteText, size: PrintSize, level: str
) -> tuple[RowOrders, tuple[str, ...]]:
    """The labels of a table, and notes for the user.

    Raises:
        BadRows: there are bad rows and ``skip_bad`` is false.
        LabelError: the table cannot be read or has no good row.
    """
    fits: set[int] = set()

    def check(product: str, identifier: str) -> None:
        """Refuse what no label can carry; texts of one length are alike, so one of them is encoded."""
        text = write_text(product, identifier)
        length = len(text.encode())
        if length not in fits:
            check_room(text, level=level, size=size)
            fits.add(length)

    table = read_table(source, product_id=product_id, check=check)
    rows = table.usable(source, skip_bad=skip_bad)
    notes = []
    if table.bad:
        lines = ", ".join(str(bad.line) for bad in table.bad)
        notes.append(f"{len(table.bad)} bad row(s) of {source.name} left out: line {lines}")
    if table.ignored_columns:
        notes.append(f"column(s) of {source.name} that mean nothing here: {', '.join(table.ignored_columns)}")
    return RowOrders(rows, write_text), tuple(notes)
