"""Products, their command vocabulary and their dashboards (specification, "Products" and "Dashboard").

A product is stored as the JSON that was sent, beside the columns that the service itself sets.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic_core import from_json, to_json
from starlette.responses import Response

from agent.wire.models import JsonObject
from simulator.service import scopes
from simulator.service.db import insert, one, update
from simulator.service.errors import conflict, invalid, invalid_all, not_found
from simulator.service.http import CallDep, Json, Router, answers, created, extends, no_content
from simulator.service.paging import Page, PageQuery, page, whole
from simulator.service.payload_checks import schema_problem
from simulator.service.times import show_time
from simulator.wire import paths
from simulator.wire.models import (
    CommandDefinition,
    Dashboard,
    NewCommandDefinition,
    NewDashboard,
    NewProduct,
    Product,
    ProductChange,
)
from simulator.wire.qr.keys import is_shown_form, show_label_key

router = Router(tag="products", scope=scopes.PRODUCTS)
dashboards = Router(tag="dashboards", scope=scopes.DASHBOARDS)

SERVER_SET: Final = frozenset({"product_id", "created_at", "updated_at"})
"""Members that the service sets; in a body they are passed over, so that a record may be sent back as it came."""


# --- stored products --------------------------------------------------------------------------------------------


def find_product(sql: sqlite3.Connection, account: int, product_id: str) -> sqlite3.Row:
    """The account's product.

    Raises:
        ApiError: 404 ``product_not_found``.
    """
    row = one(sql, "SELECT * FROM products WHERE id = ? AND account = ?", (product_id, account))
    if row is None:
        raise not_found("product", product_id)
    return row


def show_product(row: sqlite3.Row) -> JsonObject:
    """The product record; of a ``label_key`` that is a secret only its name."""
    definition: JsonObject = from_json(row["definition"])
    known = {name: definition.pop(name, None) for name in NewProduct.model_fields}
    if known["label_key"] is not None:
        known["label_key"] = show_label_key(known["label_key"])
    return {
        "product_id": row["id"],
        **known,
        "commands": known["commands"] or [],
        **definition,
        "created_at": show_time(row["created_at"]),
        "updated_at": show_time(row["updated_at"]),
    }


def label_key(row: sqlite3.Row) -> str | None:
    """The key itself that checks the product's labels. Never for an answer."""
    key: str | None = from_json(row["definition"]).get("label_key")
    return key


def vocabulary(row: sqlite3.Row) -> list[JsonObject]:
    """The product's command vocabulary."""
    return from_json(row["definition"]).get("commands") or []


def add_product(sql: sqlite3.Connection, account: int, product: NewProduct, product_id: str, now_ms: int) -> None:
    """Store a new product."""
    definition = {name: value for name, value in product.model_dump().items() if name not in SERVER_SET}
    text = to_json(definition).decode()
    insert(sql, "products", id=product_id, account=account, definition=text, created_at=now_ms, updated_at=now_ms)


def change_definition(sql: sqlite3.Connection, row: sqlite3.Row, changes: ProductChange, now_ms: int) -> None:
    """Replace the members that were given.

    Raises:
        ApiError: 409 ``label_key_hidden``.
    """
    # Not ``exclude_unset``, which would also leave members out of the words of a vocabulary.
    given = {k: v for k, v in changes.model_dump().items() if k in changes.model_fields_set and k not in SERVER_SET}
    stored, new_key = label_key(row), given.get("label_key")
    if new_key is not None and is_shown_form(new_key):
        # A record that is sent back as it came names the secret instead of telling it: it stays.
        if stored is None or show_label_key(stored) != new_key:
            raise conflict("label_key_hidden", f"label_key {new_key} is the name of another key: give the key itself.")
        given["label_key"] = stored
    definition = {**from_json(row["definition"]), **given}
    update(sql, "products", row["row"], definition=to_json(definition).decode(), updated_at=now_ms)


def check_vocabulary(definitions: Iterable[NewCommandDefinition]) -> list[tuple[str, str]]:
    """What is wrong with a vocabulary: a name that occurs twice, a ``payload_schema`` that is no schema."""
    problems = []
    seen: set[str] = set()
    for index, definition in enumerate(definitions):
        if definition.name in seen:
            problems.append((f"commands.{index}.name", "occurs twice in this vocabulary"))
        seen.add(definition.name)
        if definition.payload_schema is not None and (problem := schema_problem(definition.payload_schema)):
            where, issue = problem
            problems.append((f"commands.{index}.payload_schema.{where}".rstrip("."), issue))
    return problems


def _checked(definitions: Iterable[NewCommandDefinition] | None) -> None:
    if problems := check_vocabulary(definitions or ()):
        raise invalid_all(problems)


# --- endpoints --------------------------------------------------------------------------------------------------


@router.get(paths.PRODUCTS, response_model=Page[Product])
async def list_products(call: CallDep, q: Annotated[PageQuery, Query()]) -> Response:
    """Products owned by the caller's account, in the order of creation."""
    return page(call, q, "SELECT * FROM products WHERE account = ?", [call.account], show=show_product)


@router.post(paths.PRODUCTS, status_code=201, response_model=Product)
async def create_product(call: CallDep, body: NewProduct) -> Response:
    """Create a product."""
    _checked(body.commands)
    product_id = call.service.ids.next()
    with call.db.write() as sql:
        add_product(sql, call.account, body, product_id, call.now_ms)
    return created(show_product(find_product(call.db.sql, call.account, product_id)), paths.product(product_id))


@router.get(paths.PRODUCT, response_model=Product, responses=answers(404), openapi_extra=extends("single-records"))
async def get_product(call: CallDep, product_id: str) -> Response:
    """One product."""
    return Json(show_product(find_product(call.db.sql, call.account, product_id)))


@router.put(paths.PRODUCT, response_model=Product, responses=answers(404, 409))
async def change_product(call: CallDep, product_id: str, body: ProductChange) -> Response:
    """Change the given fields of a product; null clears an optional one."""
    _checked(body.commands)
    with call.db.write() as sql:
        change_definition(sql, find_product(sql, call.account, product_id), body, call.now_ms)
    return Json(show_product(find_product(call.db.sql, call.account, product_id)))


@router.delete(paths.PRODUCT, status_code=204, responses=answers(404, 409))
async def delete_product(call: CallDep, product_id: str) -> Response:
    """Delete a product that no device has."""
    with call.db.write() as sql:
        row = find_product(sql, call.account, product_id)
        in_use = "SELECT count(*) FROM devices WHERE account = ? AND product_id = ? AND removed_at IS NULL"
        count = sql.execute(in_use, (call.account, product_id)).fetchone()[0]
        if count:
            raise conflict("product_in_use", f"{count} device(s) are of this product: remove them first.")
        for table in ("runtime_records", "tables", "schemas", "rules"):
            sql.execute(f"DELETE FROM {table} WHERE product_id = ?", (product_id,))
        sql.execute("DELETE FROM products WHERE row = ?", (row["row"],))
    return no_content()


@router.get(paths.PRODUCT_COMMANDS, response_model=Page[CommandDefinition], responses=answers(404))
async def list_product_commands(call: CallDep, product_id: str) -> Response:
    """The product's command vocabulary, whole."""
    return whole(call, vocabulary(find_product(call.db.sql, call.account, product_id)))


@dashboards.get(paths.PRODUCT_DASHBOARD, response_model=Dashboard, responses=answers(404))
async def get_dashboard(call: CallDep, product_id: str) -> Response:
    """The product's dashboard; an empty one before the first PUT."""
    return Json(_show_dashboard(find_product(call.db.sql, call.account, product_id)))


@dashboards.put(paths.PRODUCT_DASHBOARD, response_model=Dashboard, responses=answers(404))
async def put_dashboard(call: CallDep, product_id: str, body: NewDashboard) -> Response:
    """Replace the product's dashboard; `product_id` and `updated_at` are passed over, so what was read can be put."""
    if not body.model_fields_set & {"name", "widgets"}:
        raise invalid("body", "give name, widgets or both: this replaces the whole dashboard")
    ids = [widget.id for widget in body.widgets]
    twice = [index for index, widget_id in enumerate(ids) if widget_id in ids[:index]]
    if twice:
        raise invalid_all([(f"widgets.{index}.id", "occurs twice in this dashboard") for index in twice])
    text = to_json(body.model_dump(include={"name", "widgets"})).decode()
    with call.db.write() as sql:
        row = find_product(sql, call.account, product_id)
        update(sql, "products", row["row"], dashboard=text, dashboard_updated_at=call.now_ms)
    return Json(_show_dashboard(find_product(call.db.sql, call.account, product_id)))


def _show_dashboard(row: sqlite3.Row) -> JsonObject:
    stored: dict[str, Any] = {"name": None, "widgets": []} if row["dashboard"] is None else from_json(row["dashboard"])
    updated_at = None if row["dashboard"] is None else show_time(row["dashboard_updated_at"])
    return {"product_id": row["id"], **stored, "updated_at": updated_at}
