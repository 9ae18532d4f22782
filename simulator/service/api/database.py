"""Product databases: schemas, tables, runtime data (specification, "Database" and "Runtime data record")."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Query, Response
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import from_json, to_json

from agent.errors import InvalidMessage
from agent.wire.encoding import parse_time, to_rfc3339
from agent.wire.models import JsonObject, NewRuntimeRecord, RuntimeRecord
from simulator.service import scopes
from simulator.service.api.devices import find_device
from simulator.service.api.products import find_product
from simulator.service.columns import COMMAND_RESULTS, RESULT_COLUMNS, keep_columns, keep_payload
from simulator.service.db import insert, one, update
from simulator.service.errors import conflict, invalid, invalid_all, not_found
from simulator.service.http import Call, CallDep, Json, Router, answers, created, extends, no_content
from simulator.service.paging import Page, PageQuery, page
from simulator.service.times import show_time
from simulator.wire import paths
from simulator.wire.models import (
    NewColumn,
    NewSchema,
    NewTable,
    RuntimeRecordChange,
    Schema,
    Table,
)

if TYPE_CHECKING:
    from simulator.service.service import Service

router = Router(tag="database", scope=scopes.DATABASE)

_COLUMNS: Final = TypeAdapter(tuple[NewColumn, ...])
_DATA: Final = "data."
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_RECORDS: Final = (
    "SELECT *, (SELECT id FROM devices WHERE devices.row = runtime_records.device) AS device_id FROM runtime_records"
)


class SchemaQuery(PageQuery):
    """Of the list of schemas."""

    name: str | None = None


class RuntimeDataQuery(PageQuery):
    """Of the list of records. Further parameters are the columns: ``data.<column>``."""

    model_config = ConfigDict(extra="allow")

    product_id: str | None = None
    device_id: str | None = None
    table_name: str | None = None


# --- schemas and tables -----------------------------------------------------------------------------------------


@router.get(paths.PRODUCT_SCHEMAS, response_model=Page[Schema], responses=answers(404))
async def list_schemas(call: CallDep, product_id: str, query: Annotated[SchemaQuery, Query()]) -> Response:
    """The product's schemas, in the order of creation."""
    find_product(call.db.sql, call.account, product_id)
    statement, values = "SELECT * FROM schemas WHERE product_id = ?", [product_id]
    if query.name is not None:
        statement, values = f"{statement} AND name = ?", [product_id, query.name]
    return page(call, query, statement, values, _show_schema)


@router.post(paths.PRODUCT_SCHEMAS, status_code=201, response_model=Schema, responses=answers(404, 409))
async def create_schema(call: CallDep, product_id: str, body: NewSchema) -> Response:
    """Create a schema; its name is unique in the product."""
    find_product(call.db.sql, call.account, product_id)
    with call.db.write() as sql:
        try:
            row = insert(
                sql,
                "schemas",
                id=call.service.ids.next(),
                account=call.account,
                product_id=product_id,
                name=body.name,
                description=body.description,
                created_at=call.now_ms,
            )
        except sqlite3.IntegrityError:
            raise conflict("schema_exists", f"This product has a schema {body.name!r} already.") from None
        shown = _show_schema(sql.execute("SELECT * FROM schemas WHERE row = ?", [row]).fetchone())
    return created(shown, f"{paths.product_schemas(product_id)}?name={paths.segment(body.name)}")


@router.post(paths.TABLES, status_code=201, response_model=Table, responses=answers(404, 409))
async def create_table(call: CallDep, body: NewTable) -> Response:
    """Create a table with typed columns; its name is unique in the product."""
    columns, problems = keep_columns(body.columns)
    if problems:
        raise invalid_all(problems)
    schema = one(call.db.sql, "SELECT * FROM schemas WHERE id = ? AND account = ?", [body.schema_id, call.account])
    if schema is None:
        raise not_found("schema", body.schema_id)
    product_id = schema["product_id"]
    table_id, shown = call.service.ids.next(), [column.model_dump() for column in columns]
    with call.db.write() as sql:
        try:
            if body.table_name == COMMAND_RESULTS:
                raise sqlite3.IntegrityError
            insert(
                sql,
                "tables",
                id=table_id,
                account=call.account,
                product_id=product_id,
                schema_id=body.schema_id,
                table_name=body.table_name,
                columns=to_json(shown).decode(),
                created_at=call.now_ms,
            )
        except sqlite3.IntegrityError:
            issue = f"This product has a table {body.table_name!r} already: records name it by product and table alone."
            raise conflict("table_exists", issue) from None
    table = {
        "table_id": table_id,
        "schema_id": body.schema_id,
        "table_name": body.table_name,
        "columns": shown,
        "created_at": show_time(call.now_ms),
    }
    query = f"product_id={paths.segment(product_id)}&table_name={paths.segment(body.table_name)}"
    return created(table, f"{paths.RUNTIME_DATA}?{query}")


def _show_schema(row: sqlite3.Row) -> JsonObject:
    return {
        "schema_id": row["id"],
        "product_id": row["product_id"],
        "name": row["name"],
        "description": row["description"],
        "created_at": show_time(row["created_at"]),
    }


def find_columns(sql: sqlite3.Connection, product_id: str, table_name: str) -> Sequence[NewColumn]:
    """The columns of a table of a product.

    Raises:
        ApiError: 404 ``table_not_found``.
    """
    if table_name == COMMAND_RESULTS:
        return RESULT_COLUMNS
    row = one(sql, "SELECT columns FROM tables WHERE product_id = ? AND table_name = ?", [product_id, table_name])
    if row is None:
        raise not_found("table", table_name)
    return _COLUMNS.validate_json(row["columns"])


# --- runtime data -----------------------------------------------------------------------------------------------


@router.post(paths.RUNTIME_DATA, status_code=201, response_model=RuntimeRecord, responses=answers(404))
async def create_runtime_record(call: CallDep, body: NewRuntimeRecord) -> Response:
    """Store a record in a table; every product has the table `command_results`."""
    _check_table_shown(call, body.table_name)
    find_product(call.db.sql, call.account, body.product_id)
    device = find_device(call.db.sql, call.account, body.device_id)
    if device["product_id"] != body.product_id:
        raise invalid("device_id", "is a device of another product than product_id")
    with call.db.write() as sql:
        record = add_record(call.service, sql, device, body.table_name, body.data_payload, call.now_ms)
    return created(record, paths.runtime_record(record["id"]))


def add_record(
    service: Service, sql: sqlite3.Connection, device: sqlite3.Row, table_name: str, payload: JsonObject, now_ms: int
) -> JsonObject:
    """Store a record of a device in a table of its product; the record as it is answered.

    Raises:
        ApiError: there is no such table, or the content does not fit its columns.
    """
    row = insert(
        sql,
        "runtime_records",
        id=service.ids.next(),
        account=device["account"],
        product_id=device["product_id"],
        device=device["row"],
        table_name=table_name,
        data_payload=_fit(find_columns(sql, device["product_id"], table_name), payload),
        created_at=now_ms,
        updated_at=now_ms,
    )
    return _show_record(sql.execute(f"{_RECORDS} WHERE row = ?", [row]).fetchone())


@router.get(
    paths.RUNTIME_DATA,
    response_model=Page[RuntimeRecord],
    responses=answers(404),
    openapi_extra={
        "parameters": [
            {
                "name": "data.<column>",
                "in": "query",
                "schema": {"type": "string"},
                "description": "With this value in the column of that name; several narrow further. `true`, `false`, "
                "`null`, numbers and times match by meaning, whatever their spelling; objects and arrays are not "
                "found by it",
            }
        ]
    },
)
async def list_runtime_data(call: CallDep, query: Annotated[RuntimeDataQuery, Query()]) -> Response:
    """Records by the time of creation, newest first; by product, device, table and the values of their columns."""
    sql, account = call.db.sql, call.account
    data: dict[str, str] = {}
    for name, text in (query.model_extra or {}).items():
        if not name.startswith(_DATA) or name == _DATA:
            raise invalid(name, "unknown query parameter; this path has data.<column> beside its filters")
        data[name.removeprefix(_DATA)] = text
    statement, values = f"{_RECORDS} WHERE account = ?", list[Any]([account])
    if query.product_id is not None:
        find_product(sql, account, query.product_id)
        statement, values = f"{statement} AND product_id = ?", [*values, query.product_id]
    if query.device_id is not None:
        device = find_device(sql, account, query.device_id)
        statement, values = f"{statement} AND device = ?", [*values, device["row"]]
    if query.table_name is not None:
        _check_table_shown(call, query.table_name)
        _check_column_names(sql, account, query.product_id, query.table_name, data)
        statement, values = f"{statement} AND table_name = ?", [*values, query.table_name]
    for column, text in data.items():
        condition, wanted = _has_value(column, text)
        statement, values = f"{statement} AND {condition}", [*values, *wanted]
    # A filter may pass over very many records before a page is full.
    return await call.db.aggregate(
        lambda reader: page(call, query, statement, values, _show_record, default_order="desc", sql=reader)
    )


def _check_table_shown(call: Call, table_name: str) -> None:
    """404 for the table of results where the account's variant has none."""
    if call.variant is not None and call.variant.results == "none" and table_name == COMMAND_RESULTS:
        raise not_found("table", table_name)


def _check_column_names(
    sql: sqlite3.Connection, account: int, product_id: str | None, table_name: str, data: dict[str, str]
) -> None:
    """404 for a table that no product has, 400 for a column that no such table has."""
    tables: list[Sequence[NewColumn]] = [RESULT_COLUMNS] if table_name == COMMAND_RESULTS else []
    for row in sql.execute(
        "SELECT columns FROM tables WHERE account = ? AND table_name = ? AND ifnull(product_id = ?, TRUE)",
        [account, table_name, product_id],
    ):
        tables.append(_COLUMNS.validate_json(row["columns"]))
    if not tables:
        raise not_found("table", table_name)
    known = {column.name for columns in tables for column in columns}
    for name in data.keys() - known:
        raise invalid(f"{_DATA}{name}", f"table {table_name!r} has no such column")


def _has_value(column: str, text: str) -> tuple[str, list[Any]]:
    """The condition of ``data.<column>=<text>``: the text as a string, and as whatever else it is the text of."""
    number, time = None, text
    if _NUMBER.fullmatch(text):
        number = float(text)
        if text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**63:
            number = int(text)
    with contextlib.suppress(InvalidMessage):
        time = to_rfc3339(parse_time(text))
    literal = text if text in {"true", "false", "null"} else None
    condition = """EXISTS (
        SELECT 1 FROM json_each(data_payload) AS member WHERE member.key = ? AND (
            member.type = 'text' AND member.atom IN (?, ?)
            OR member.type IN ('integer', 'real') AND member.atom = ?
            OR member.type = ?
        )
    )"""
    return condition, [column, text, time, number, literal]


@router.get(
    paths.RUNTIME_RECORD, response_model=RuntimeRecord, responses=answers(404), openapi_extra=extends("single-records")
)
async def show_runtime_record(call: CallDep, record_id: str) -> Response:
    """One record."""
    return Json(_show_record(_find_record(call, record_id)))


@router.put(paths.RUNTIME_RECORD, response_model=RuntimeRecord, responses=answers(404))
async def replace_runtime_record(call: CallDep, record_id: str, body: RuntimeRecordChange) -> Response:
    """Replace the content of a record; columns left out get their default again."""
    record = _find_record(call, record_id)
    payload = _fit(find_columns(call.db.sql, record["product_id"], record["table_name"]), body.data_payload)
    with call.db.write() as sql:
        update(sql, "runtime_records", record["row"], data_payload=payload, updated_at=call.now_ms)
    return Json(_show_record(_find_record(call, record_id)))


@router.delete(paths.RUNTIME_RECORD, status_code=204, responses=answers(404))
async def delete_runtime_record(call: CallDep, record_id: str) -> Response:
    """Delete a record."""
    record = _find_record(call, record_id)
    with call.db.write() as sql:
        sql.execute("DELETE FROM runtime_records WHERE row = ?", [record["row"]])
    return no_content()


def _find_record(call: Call, record_id: str) -> sqlite3.Row:
    row = one(call.db.sql, f"{_RECORDS} WHERE id = ? AND account = ?", [record_id, call.account])
    if row is None:
        raise not_found("record", record_id)
    return row


def _show_record(row: sqlite3.Row) -> JsonObject:
    return {
        "id": row["id"],
        "product_id": row["product_id"],
        "device_id": row["device_id"],
        "table_name": row["table_name"],
        "data_payload": from_json(row["data_payload"]),
        "created_at": show_time(row["created_at"]),
        "updated_at": show_time(row["updated_at"]),
    }


def _fit(columns: Sequence[NewColumn], payload: JsonObject) -> str:
    """The content as JSON text, as the columns keep it; 400 with everything that does not fit."""
    kept, problems = keep_payload(columns, payload)
    if problems:
        raise invalid_all(problems)
    return to_json(kept).decode()
