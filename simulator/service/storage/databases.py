"""Product databases: schemas, and tables with typed columns."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, delete, insert, select

from agent.wire.base import JsonObject
from simulator.service.core.columns import COMMAND_RESULTS, TableColumn
from simulator.service.errors import Conflict, not_found
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.tables import (
    dashboards,
    database_schemas,
    database_tables,
    runtime_records,
    runtime_values,
)
from simulator.service.times import show_time
from simulator.wire.database import NewSchema

COMMAND_RESULTS_NAME: Final = "command_results"


def provision(connection: Connection, product: Row[Any]) -> None:
    """Give a new product the table that devices report results to."""
    table_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{product.id}/{COMMAND_RESULTS_NAME}"))
    _insert_table(
        connection,
        product,
        None,
        COMMAND_RESULTS_NAME,
        COMMAND_RESULTS,
        table_id=table_id,
        now_ms=product.created_at,
    )


def drop(connection: Connection, product_seq: int) -> None:
    """The product is deleted: all that its database holds goes with it, and its dashboard."""
    mine = select(runtime_records.c.seq).where(runtime_records.c.product_seq == product_seq)
    connection.execute(delete(runtime_values).where(runtime_values.c.record_seq.in_(mine)))
    for table in (runtime_records, database_tables, database_schemas, dashboards):
        connection.execute(delete(table).where(table.c.product_seq == product_seq))


def show_schema(row: Row[Any], product_id: str) -> JsonObject:
    """The schema record, as the wire has it."""
    return {
        "schema_id": row.id,
        "product_id": product_id,
        "name": row.name,
        "description": row.description,
        "created_at": show_time(row.created_at),
    }


def add_schema(connection: Connection, product: Row[Any], schema: NewSchema, schema_id: str, now_ms: int) -> JsonObject:
    """Store a new schema.

    Raises:
        Conflict: ``schema_exists``.
    """
    c = database_schemas.c
    same = select(c.seq).where(c.product_seq == product.seq, c.name == schema.name)
    if connection.execute(same).first() is not None:
        raise Conflict("schema_exists", f"This product has a schema {schema.name!r} already.")
    statement = insert(database_schemas).values(
        id=schema_id,
        manufacturer_seq=product.manufacturer_seq,
        product_seq=product.seq,
        name=schema.name,
        description=schema.description,
        created_at=now_ms,
    )
    connection.execute(statement)
    return show_schema(find_schema(connection, product.manufacturer_seq, schema_id), product.id)


def find_schema(connection: Connection, manufacturer_seq: int, schema_id: str) -> Row[Any]:
    """The stored schema with this id.

    Raises:
        NotFound: ``schema_not_found``.
    """
    c = database_schemas.c
    statement = select(database_schemas).where(c.id == schema_id, c.manufacturer_seq == manufacturer_seq)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise not_found("schema", schema_id)
    return row


def list_schemas(connection: Connection, product_seq: int, name: str | None, window: Window) -> Rows[Row[Any]]:
    """Schemas in the order of their creation, one more than the window takes."""
    c = database_schemas.c
    statement = select(database_schemas).where(c.product_seq == product_seq)
    if name is not None:
        statement = statement.where(c.name == name)
    return fetch(connection, statement, window, c.seq)


def add_table(
    connection: Connection,
    schema: Row[Any],
    product: Row[Any],
    table_name: str,
    columns: Sequence[TableColumn],
    *,
    table_id: str,
    now_ms: int,
) -> JsonObject:
    """Store a new table of a schema.

    Raises:
        Conflict: ``table_exists``, in this or another schema of the product.
    """
    if find_tables(connection, product.manufacturer_seq, product.seq, table_name):
        raise Conflict(
            "table_exists",
            f"This product has a table {table_name!r} already: records name it by product and table alone.",
        )
    _insert_table(connection, product, schema.seq, table_name, columns, table_id=table_id, now_ms=now_ms)
    return {
        "table_id": table_id,
        "schema_id": schema.id,
        "table_name": table_name,
        "columns": [column.show() for column in columns],
        "created_at": show_time(now_ms),
    }


def _insert_table(
    connection: Connection,
    product: Row[Any],
    schema_seq: int | None,
    table_name: str,
    columns: Sequence[TableColumn],
    *,
    table_id: str,
    now_ms: int,
) -> None:
    connection.execute(
        insert(database_tables).values(
            id=table_id,
            manufacturer_seq=product.manufacturer_seq,
            product_seq=product.seq,
            schema_seq=schema_seq,
            table_name=table_name,
            columns=to_json([column.show() for column in columns]).decode(),
            created_at=now_ms,
        )
    )


def find_tables(
    connection: Connection, manufacturer_seq: int, product_seq: int | None, table_name: str
) -> Sequence[Row[Any]]:
    """The tables of this name: one at most in a product, else one in each product of the account that has it."""
    c = database_tables.c
    statement = select(database_tables).where(c.manufacturer_seq == manufacturer_seq, c.table_name == table_name)
    if product_seq is not None:
        statement = statement.where(c.product_seq == product_seq)
    return connection.execute(statement).all()


def find_table(connection: Connection, product: Row[Any], table_name: str) -> Row[Any]:
    """One table of a product.

    Raises:
        NotFound: ``table_not_found``.
    """
    found = find_tables(connection, product.manufacturer_seq, product.seq, table_name)
    if not found:
        raise not_found("table", table_name)
    return found[0]


def columns_of(table: Row[Any]) -> tuple[TableColumn, ...]:
    """The columns of a table."""
    return tuple(TableColumn(**column) for column in from_json(table.columns))
