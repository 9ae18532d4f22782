"""Product databases: schemas, tables, runtime data (specification, "Database" and "Runtime data record")."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row

from agent.wire import paths
from agent.wire.runtime_data import NewRuntimeRecord
from simulator.service.answers import NO_CONTENT, Answer, WriteResult, created, ok
from simulator.service.call import Call
from simulator.service.core.columns import check_columns
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import invalid, invalid_all, not_found
from simulator.service.paging import PAGE_PARAMETERS, answer_list, read_page
from simulator.service.parameters import PAGING, SINGLE_RECORDS, text_filter
from simulator.service.records import RuntimeRecord, SchemaRecord, TableRecord
from simulator.service.storage import databases, devices, products, runtime_data
from simulator.service.storage.lists import Rows
from simulator.service.storage.runtime_data import RuntimeFilter
from simulator.wire.database import NewSchema, NewTable, RuntimeRecordChange

_TAG: Final = "database"
_DATA: Final = "data."
_FILTERS: Final = frozenset({"product_id", "device_id", "table_name"})


async def list_schemas(call: Call) -> Answer:
    """The product's schemas."""
    query = call.query(PAGE_PARAMETERS | {"name"})
    page = read_page(call, query, default_order="asc", sort_values=1)
    account, product_id, name = call.caller.manufacturer_seq, call.path("product_id"), query.get("name")

    def find(connection: Connection) -> Rows[Row[Any]]:
        return databases.list_schemas(connection, products.find(connection, account, product_id).seq, name, page)

    return await answer_list(call, page, find, lambda row: databases.show_schema(row, product_id))


async def create_schema(call: Call) -> Answer:
    """A new schema of a product."""
    schema = await call.message(NewSchema)
    service, account, product_id = call.service, call.caller.manufacturer_seq, call.path("product_id")
    schema_id, now_ms = service.ids.next(), service.clock.now_ms()
    location = f"{paths.product_schemas(product_id)}?name={paths.segment(schema.name)}"

    def add(connection: Connection) -> WriteResult:
        product = products.find(connection, account, product_id)
        return WriteResult(created(databases.add_schema(connection, product, schema, schema_id, now_ms), location))

    return await call.write(add)


async def create_table(call: Call) -> Answer:
    """A new table of a schema."""
    table = await call.message(NewTable)
    columns, faults = check_columns(table.columns)
    if faults:
        raise invalid_all(faults)
    service, account = call.service, call.caller.manufacturer_seq
    table_id, now_ms = service.ids.next(), service.clock.now_ms()

    def add(connection: Connection) -> WriteResult:
        schema = databases.find_schema(connection, account, table.schema_id)
        product = products.find_by_seq(connection, schema.product_seq)
        record = databases.add_table(
            connection, schema, product, table.table_name, columns, table_id=table_id, now_ms=now_ms
        )
        query = f"product_id={paths.segment(product.id)}&table_name={paths.segment(table.table_name)}"
        return WriteResult(created(record, f"{paths.RUNTIME_DATA}?{query}"))

    return await call.write(add)


async def create_runtime_record(call: Call) -> Answer:
    """A new record of a table."""
    request = await call.message(NewRuntimeRecord)
    service, account = call.service, call.caller.manufacturer_seq
    record_id, now_ms = service.ids.next(), service.clock.now_ms()

    def add(connection: Connection) -> WriteResult:
        product = products.find(connection, account, request.product_id)
        device = devices.find(connection, account, request.device_id)
        table = databases.find_table(connection, product, request.table_name)
        record = runtime_data.add(
            connection,
            table,
            device,
            request.data_payload,
            product_id=product.id,
            record_id=record_id,
            now_ms=now_ms,
        )
        return WriteResult(created(record, paths.runtime_record(record_id)))

    return await call.write(add)


async def list_runtime_data(call: Call) -> Answer:
    """Records, by product, device, table and the values of their columns."""
    query = call.query(PAGE_PARAMETERS | _FILTERS, prefix=_DATA)
    page = read_page(call, query, default_order="desc", sort_values=1)
    account = call.caller.manufacturer_seq

    def find(connection: Connection) -> Rows[Row[Any]]:
        return runtime_data.list_page(connection, account, _narrow(connection, account, query), page)

    return await answer_list(call, page, find, runtime_data.show)


def _narrow(connection: Connection, account: int, query: dict[str, str]) -> RuntimeFilter:
    """What the query asks for; 404 for something that is not there, 400 for a column that no such table has."""
    product_id, device_id, table_name = (query.get(name) for name in ("product_id", "device_id", "table_name"))
    product_seq = None if product_id is None else products.find(connection, account, product_id).seq
    device_seq = None if device_id is None else devices.find(connection, account, device_id).seq
    data = {name.removeprefix(_DATA): text for name, text in query.items() if name.startswith(_DATA)}
    if table_name is None:
        return RuntimeFilter(product_seq, device_seq, None, data)
    tables = databases.find_tables(connection, account, product_seq, table_name)
    if not tables:
        raise not_found("table", table_name)
    known = {column.name for table in tables for column in databases.columns_of(table)}
    for name in data.keys() - known:
        raise invalid(f"{_DATA}{name}", f"table {table_name!r} has no such column")
    return RuntimeFilter(product_seq, device_seq, [table.seq for table in tables], data)


async def show_runtime_record(call: Call) -> Answer:
    """One record."""
    call.query(frozenset())
    account, record_id = call.caller.manufacturer_seq, call.path("record_id")
    return ok(runtime_data.show(await call.service.look_up(lambda c: runtime_data.find(c, account, record_id))))


async def replace_runtime_record(call: Call) -> Answer:
    """Replace a record's content."""
    change = await call.message(RuntimeRecordChange)
    account, record_id, now_ms = call.caller.manufacturer_seq, call.path("record_id"), call.service.clock.now_ms()
    return await call.write(
        lambda c: WriteResult(ok(runtime_data.replace(c, account, record_id, change.data_payload, now_ms)))
    )


async def delete_runtime_record(call: Call) -> Answer:
    """Delete a record."""
    account, record_id = call.caller.manufacturer_seq, call.path("record_id")

    def remove(connection: Connection) -> WriteResult:
        runtime_data.remove(connection, account, record_id)
        return WriteResult(NO_CONTENT)

    return await call.write(remove)


_INVALID: Final = Reply(400, "`validation_error`", ERROR)
_NO_FIT: Final = Reply(400, "`validation_error`: `details` names each column that does not fit", ERROR)
_NO_PRODUCT: Final = Reply(404, "`product_not_found`", ERROR)
_NO_RECORD: Final = Reply(404, "`record_not_found`", ERROR)
_NO_REFERENCE: Final = Reply(404, "`product_not_found`, `device_not_found` or `table_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.PRODUCT_SCHEMAS,
        list_schemas,
        "list_schemas",
        "The product's schemas, in the order of creation",
        _TAG,
        (Reply(200, "One page", SchemaRecord, listed=True), _INVALID, _NO_PRODUCT),
        parameters=(text_filter("name", "With this name"), *PAGING),
    ),
    Endpoint(
        "POST",
        paths.PRODUCT_SCHEMAS,
        create_schema,
        "create_schema",
        "Create a schema",
        _TAG,
        (
            Reply(201, "The created schema", SchemaRecord, located=True),
            _INVALID,
            _NO_PRODUCT,
            Reply(409, "`schema_exists`", ERROR),
        ),
        body=(NewSchema,),
    ),
    Endpoint(
        "POST",
        paths.TABLES,
        create_table,
        "create_table",
        "Create a table with typed columns; its name is unique in the product",
        _TAG,
        (
            Reply(201, "The created table", TableRecord, located=True),
            _INVALID,
            Reply(404, "`schema_not_found`", ERROR),
            Reply(409, "`table_exists`", ERROR),
        ),
        body=(NewTable,),
    ),
    Endpoint(
        "POST",
        paths.RUNTIME_DATA,
        create_runtime_record,
        "create_runtime_record",
        "Store a record in a table; every product has the table `command_results`",
        _TAG,
        (Reply(201, "The stored record", RuntimeRecord, located=True), _NO_FIT, _NO_REFERENCE),
        body=(NewRuntimeRecord,),
    ),
    Endpoint(
        "GET",
        paths.RUNTIME_DATA,
        list_runtime_data,
        "list_runtime_data",
        "Records by the time of creation, newest first",
        _TAG,
        (Reply(200, "One page", RuntimeRecord, listed=True), _INVALID, _NO_REFERENCE),
        parameters=(
            text_filter("product_id", "Of this product"),
            text_filter("device_id", "Of this device"),
            text_filter("table_name", "In this table"),
            Parameter(
                "data.<column>",
                "With this value in the column of that name; several narrow further. `true`, `false`, `null`, numbers "
                "and times match by meaning, whatever their spelling; objects and arrays are not found by it",
                {"type": "string"},
            ),
            *PAGING,
        ),
    ),
    Endpoint(
        "GET",
        paths.RUNTIME_RECORD,
        show_runtime_record,
        "show_runtime_record",
        "One record",
        _TAG,
        (Reply(200, "The record", RuntimeRecord), _INVALID, _NO_RECORD),
        extension=SINGLE_RECORDS,
    ),
    Endpoint(
        "PUT",
        paths.RUNTIME_RECORD,
        replace_runtime_record,
        "replace_runtime_record",
        "Replace the content of a record; columns left out get their default again",
        _TAG,
        (Reply(200, "The whole record", RuntimeRecord), _NO_FIT, _NO_RECORD),
        body=(RuntimeRecordChange,),
    ),
    Endpoint(
        "DELETE",
        paths.RUNTIME_RECORD,
        delete_runtime_record,
        "delete_runtime_record",
        "Delete a record",
        _TAG,
        (Reply(204, "Deleted"), _NO_RECORD),
    ),
)
