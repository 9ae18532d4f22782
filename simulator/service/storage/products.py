"""Products and their dashboards: stored as the JSON that was sent, beside the columns that the service itself sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from agent.wire.base import JsonObject
from simulator.service.errors import Conflict, not_found
from simulator.service.storage import databases, rules
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.tables import dashboards, devices, products
from simulator.service.times import show_time
from simulator.wire.dashboards import NewDashboard
from simulator.wire.products import NewProduct, ProductChange
from simulator.wire.qr.keys import is_shown_form, show_label_key

SERVER_SET: Final = frozenset({"product_id", "created_at", "updated_at"})
"""Members that the service sets; in a body they are passed over, so that a record may be sent back as it came."""

_KNOWN: Final = tuple(NewProduct.model_fields)


def show(row: Row[Any]) -> JsonObject:
    """The product record; of a ``label_key`` that is a secret only its name."""
    definition: JsonObject = from_json(row.definition)
    known = {name: definition.pop(name, None) for name in _KNOWN}
    if known["label_key"] is not None:
        known["label_key"] = show_label_key(known["label_key"])
    return {
        "product_id": row.id,
        **known,
        "commands": known["commands"] or [],
        **definition,
        "created_at": show_time(row.created_at),
        "updated_at": show_time(row.updated_at),
    }


def label_key(row: Row[Any]) -> str | None:
    """The key itself that checks the product's labels. Never for an answer."""
    key: str | None = from_json(row.definition).get("label_key")
    return key


def add(connection: Connection, manufacturer_seq: int, product: NewProduct, product_id: str, now_ms: int) -> JsonObject:
    """Store a new product."""
    definition = {k: v for k, v in product.model_dump().items() if k not in SERVER_SET}
    statement = insert(products).values(
        id=product_id,
        manufacturer_seq=manufacturer_seq,
        definition=to_json(definition).decode(),
        created_at=now_ms,
        updated_at=now_ms,
    )
    connection.execute(statement)
    row = find(connection, manufacturer_seq, product_id)
    databases.provision(connection, row)
    return show(row)


def find(connection: Connection, manufacturer_seq: int, product_id: str) -> Row[Any]:
    """The stored product with this id.

    Raises:
        NotFound: ``product_not_found``.
    """
    statement = select(products).where(products.c.id == product_id, products.c.manufacturer_seq == manufacturer_seq)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise not_found("product", product_id)
    return row


def find_anywhere(connection: Connection, product_id: str) -> Row[Any]:
    """One product, of any account.

    Raises:
        NotFound: ``product_not_found``.
    """
    row = connection.execute(select(products).where(products.c.id == product_id)).one_or_none()
    if row is None:
        raise not_found("product", product_id, "on this service")
    return row


def exists(connection: Connection, product_id: str) -> bool:
    """Whether some account has the product."""
    c = products.c
    return connection.execute(select(c.seq).where(c.id == product_id)).first() is not None


def find_by_seq(connection: Connection, product_seq: int) -> Row[Any]:
    """The product that something else of the same account points at."""
    return connection.execute(select(products).where(products.c.seq == product_seq)).one()


def change(
    connection: Connection, manufacturer_seq: int, product_id: str, changes: ProductChange, now_ms: int
) -> JsonObject:
    """Replace the members that were given.

    Raises:
        ServiceError: not found, or ``label_key_hidden``.
    """
    row = find(connection, manufacturer_seq, product_id)
    # Not ``exclude_unset``, which would also leave members out of the words of a vocabulary.
    given = {k: v for k, v in changes.model_dump().items() if k in changes.model_fields_set and k not in SERVER_SET}
    stored = label_key(row)
    new_key = given.get("label_key")
    if new_key is not None and is_shown_form(new_key):
        # A record that is sent back as it came names the secret instead of telling it: it stays.
        if stored is None or show_label_key(stored) != new_key:
            raise Conflict("label_key_hidden", f"label_key {new_key} is the name of another key: give the key itself.")
        given["label_key"] = stored
    definition = {**from_json(row.definition), **given}
    statement = update(products).where(products.c.seq == row.seq)
    connection.execute(statement.values(definition=to_json(definition).decode(), updated_at=now_ms))
    return show(find(connection, manufacturer_seq, product_id))


def remove(connection: Connection, manufacturer_seq: int, product_id: str) -> None:
    """Delete a product that no device has.

    Raises:
        ServiceError: not found, or ``product_in_use``.
    """
    row = find(connection, manufacturer_seq, product_id)
    in_use = connection.execute(
        select(func.count())
        .select_from(devices)
        .where(
            devices.c.manufacturer_seq == manufacturer_seq,
            devices.c.product_id == product_id,
            devices.c.removed_at.is_(None),
        )
    ).scalar_one()
    if in_use:
        raise Conflict("product_in_use", f"{in_use} device(s) are of this product: remove them first.")
    databases.drop(connection, row.seq)
    rules.drop(connection, row.seq)
    connection.execute(delete(products).where(products.c.seq == row.seq))


def list_page(connection: Connection, manufacturer_seq: int, window: Window) -> Rows[Row[Any]]:
    """Products in the order of their creation, one more than the window takes."""
    statement = select(products).where(products.c.manufacturer_seq == manufacturer_seq)
    return fetch(connection, statement, window, products.c.seq)


def vocabulary(row: Row[Any]) -> list[Mapping[str, Any]]:
    """The product's command vocabulary."""
    return from_json(row.definition).get("commands") or []


def read_dashboard(connection: Connection, product: Row[Any]) -> JsonObject:
    """The product's dashboard; an empty one before the first was put."""
    row = connection.execute(select(dashboards).where(dashboards.c.product_seq == product.seq)).one_or_none()
    if row is None:
        return {"product_id": product.id, "name": None, "widgets": [], "updated_at": None}
    return {"product_id": product.id, **from_json(row.dashboard), "updated_at": show_time(row.updated_at)}


def put_dashboard(connection: Connection, product: Row[Any], dashboard: NewDashboard, now_ms: int) -> JsonObject:
    """Replace the product's dashboard."""
    text = to_json(dashboard.model_dump(include={"name", "widgets"})).decode()
    values = {"dashboard": text, "updated_at": now_ms}
    mine = dashboards.c.product_seq == product.seq
    if connection.execute(update(dashboards).where(mine).values(values)).rowcount == 0:
        named = {"product_seq": product.seq, "manufacturer_seq": product.manufacturer_seq}
        connection.execute(insert(dashboards).values({**named, **values}))
    return read_dashboard(connection, product)
