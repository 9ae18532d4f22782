"""From what a user says to the labels that are to be made: counted, reserved in a ledger, or out of a table."""

from __future__ import annotations

from pathlib import Path

from simulator.labels.batch.ledger import Ledger, Reservation
from simulator.labels.batch.orders import RowOrders, SerialOrders, WriteText
from simulator.labels.batch.rows import read_table
from simulator.labels.errors import LabelError
from simulator.labels.payload import IdentifierTemplate
from simulator.labels.symbol.proving import PrintSize, check_room


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
    """The same labels with serials that the ledger gives, and what has to be said about it.

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
    """The labels of a table, and what has to be said about it.

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
