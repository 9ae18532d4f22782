"""Runtime data: the records of products' tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, delete, insert, select, update

from agent.wire.base import JsonObject
from simulator.service.core.columns import check_payload, filter_hashes, value_hashes
from simulator.service.errors import invalid, invalid_all, not_found
from simulator.service.storage.databases import columns_of
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.tables import database_tables, devices, products, runtime_records, runtime_values
from simulator.service.times import show_time


@dataclass(frozen=True, slots=True)
class RuntimeFilter:
    """What a list of records is narrowed to; None takes all.

    Attributes:
        table_seqs: tables of the name that was asked for.
        data: column -> text that its value must be.
    """

    product_seq: int | None = None
    device_seq: int | None = None
    table_seqs: Sequence[int] | None = None
    data: Mapping[str, str] = field(default_factory=dict)


_RECORDS: Final = (
    select(
        runtime_records,
        products.c.id.label("product_id"),
        devices.c.id.label("device_id"),
        database_tables.c.table_name,
    )
    .join(products, products.c.seq == runtime_records.c.product_seq)
    .join(devices, devices.c.seq == runtime_records.c.device_seq)
    .join(database_tables, database_tables.c.seq == runtime_records.c.table_seq)
)


def show(row: Row[Any]) -> JsonObject:
    """The runtime record, as the wire has it."""
    return {
        "id": row.id,
        "product_id": row.product_id,
        "device_id": row.device_id,
        "table_name": row.table_name,
        "data_payload": from_json(row.data_payload),
        "created_at": show_time(row.created_at),
        "updated_at": show_time(row.updated_at),
    }


def add(
    connection: Connection,
    table: Row[Any],
    device: Row[Any],
    data_payload: JsonObject,
    *,
    product_id: str,
    record_id: str,
    now_ms: int,
) -> JsonObject:
    """Store a new record.

    Raises:
        Invalid: the device is of another product, or the content does not fit the columns.
    """
    if device.product_id != product_id:
        raise invalid("device_id", "is a device of another product than product_id")
    kept = _fit(table, data_payload)
    statement = insert(runtime_records).values(
        id=record_id,
        manufacturer_seq=table.manufacturer_seq,
        product_seq=table.product_seq,
        table_seq=table.seq,
        device_seq=device.seq,
        data_payload=to_json(kept).decode(),
        created_at=now_ms,
        updated_at=now_ms,
    )
    record_seq = connection.execute(statement.returning(runtime_records.c.seq)).scalar_one()
    _index(connection, table.manufacturer_seq, record_seq, kept)
    return show(find(connection, table.manufacturer_seq, record_id))


def find(connection: Connection, manufacturer_seq: int, record_id: str) -> Row[Any]:
    """The stored runtime record with this id.

    Raises:
        NotFound: ``record_not_found``.
    """
    c = runtime_records.c
    statement = _RECORDS.where(c.id == record_id, c.manufacturer_seq == manufacturer_seq)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise not_found("record", record_id)
    return row


def replace(
    connection: Connection, manufacturer_seq: int, record_id: str, data_payload: JsonObject, now_ms: int
) -> JsonObject:
    """Put new content in the place of the old.

    Raises:
        ServiceError: not found, or invalid when the content does not fit the columns.
    """
    row = find(connection, manufacturer_seq, record_id)
    of_row = select(database_tables).where(database_tables.c.seq == row.table_seq)
    kept = _fit(connection.execute(of_row).one(), data_payload)
    connection.execute(
        update(runtime_records)
        .where(runtime_records.c.seq == row.seq)
        .values(data_payload=to_json(kept).decode(), updated_at=now_ms)
    )
    connection.execute(delete(runtime_values).where(runtime_values.c.record_seq == row.seq))
    _index(connection, manufacturer_seq, row.seq, kept)
    return show(find(connection, manufacturer_seq, record_id))


def remove(connection: Connection, manufacturer_seq: int, record_id: str) -> None:
    """Delete a runtime record.

    Raises:
        NotFound: there is none.
    """
    row = find(connection, manufacturer_seq, record_id)
    connection.execute(delete(runtime_values).where(runtime_values.c.record_seq == row.seq))
    connection.execute(delete(runtime_records).where(runtime_records.c.seq == row.seq))


def list_page(connection: Connection, manufacturer_seq: int, narrow: RuntimeFilter, window: Window) -> Rows[Row[Any]]:
    """Records in the order of their creation, one more than the window takes."""
    c = runtime_records.c
    statement = _RECORDS.where(c.manufacturer_seq == manufacturer_seq)
    if narrow.product_seq is not None:
        statement = statement.where(c.product_seq == narrow.product_seq)
    if narrow.device_seq is not None:
        statement = statement.where(c.device_seq == narrow.device_seq)
    if narrow.table_seqs is not None:
        statement = statement.where(c.table_seq.in_(narrow.table_seqs))
    for column, text in narrow.data.items():
        with_value = select(runtime_values.c.record_seq).where(
            runtime_values.c.value_hash.in_(filter_hashes(column, text)),
            runtime_values.c.manufacturer_seq == manufacturer_seq,
        )
        statement = statement.where(c.seq.in_(with_value))
    return fetch(connection, statement, window, c.seq)


def _fit(table: Row[Any], data_payload: JsonObject) -> JsonObject:
    kept, faults = check_payload(columns_of(table), data_payload)
    if faults:
        raise invalid_all(faults)
    return kept


def _index(connection: Connection, manufacturer_seq: int, record_seq: int, kept: JsonObject) -> None:
    rows = [
        {"value_hash": value_hash, "record_seq": record_seq, "manufacturer_seq": manufacturer_seq}
        for value_hash in sorted(value_hashes(kept))
    ]
    if rows:
        connection.execute(insert(runtime_values), rows)
