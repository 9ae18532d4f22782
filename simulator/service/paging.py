"""Lists: ``limit``, ``cursor``, ``order``, the envelope and its ``Link``."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from agent.wire.limits import PAGE_DEFAULT, PAGE_MAX
from simulator.service.errors import invalid
from simulator.service.http import Call, Json
from simulator.wire.base64url import from_base64url, to_base64url

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Items of a page, as JSON; a single item may be larger."""
_INT64: Final = 2**63

Order = Literal["asc", "desc"]
Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """One page of a list, as the OpenAPI document describes it."""

    data: list[Item]
    next_cursor: str | None
    has_more: bool


class PageQuery(BaseModel):
    """The query parameters of every list; a list with filters has a subclass."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(PAGE_DEFAULT, ge=1, le=PAGE_MAX)
    cursor: str | None = None
    order: Order | None = None


def page(
    call: Call,
    query: PageQuery,
    select: str,
    values: Sequence[object],
    show: Callable[[sqlite3.Row], Any],
    *,
    default_order: Order = "asc",
    sort: Sequence[str] = ("row",),
    sql: sqlite3.Connection | None = None,
) -> Json:
    """One page of a list.

    Args:
        call: the request.
        query: what it asks for.
        select: ``SELECT ... WHERE ...`` without order and limit; with the columns of ``sort``.
        values: its parameters.
        show: the item of a row; None leaves it out.
        default_order: where the query says nothing.
        sort: the columns that the list is sorted by; together they are unique.
        sql: where to read; the service's connection when None.
    """
    order = query.order or default_order
    path = call.request.scope["path"]
    asked = query.model_dump(exclude_unset=True, exclude={"cursor", "limit", "order"}, mode="json", by_alias=True)
    name = _list_name(call, path, order, asked)
    after = () if query.cursor is None else _read_cursor(query.cursor, name, len(sort))
    columns = ", ".join(sort)
    if after:
        select += f" AND ({columns}) {'>' if order == 'asc' else '<'} ({', '.join('?' * len(sort))})"
    direction = ", ".join(f"{column} {order}" for column in sort)
    statement = f"{select} ORDER BY {direction} LIMIT ?"
    items: list[bytes] = []
    size = count = 0
    last: sqlite3.Row | None = None
    has_more = False
    with closing((sql or call.db.sql).execute(statement, (*values, *after, query.limit + 1))) as rows:
        for row in rows:
            item = None if count == query.limit else show(row)
            text = b"" if item is None else to_json(item)
            size += len(text) + 1
            if count == query.limit or (size > PAGE_BYTES and items):
                has_more = True
                break
            if item is not None:
                items.append(text)
            count, last = count + 1, row
    cursor = _write_cursor(name, [last[column] for column in sort]) if has_more and last is not None else None
    body = b'{"data":[%b],"next_cursor":%b,"has_more":%b}' % (b",".join(items), to_json(cursor), to_json(has_more))
    answer = Json(None)
    answer.body = body
    answer.headers["content-length"] = str(len(body))
    if cursor is not None:
        given = {**query.model_dump(exclude_unset=True, mode="json", by_alias=True), "cursor": cursor}
        shown = urlencode({key: _text(value) for key, value in given.items() if value is not None})
        answer.headers["link"] = f'<{path}?{shown}>; rel="next"'
    return answer


def whole(data: Sequence[Any]) -> Json:
    """The envelope of a list that is never cut."""
    return Json({"data": data, "next_cursor": None, "has_more": False})


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _list_name(call: Call, path: str, order: str, asked: dict[str, Any]) -> str:
    """Which list it is: a cursor of another list, account or filter is refused."""
    account = None if call.caller is None else call.caller.account
    named = json.dumps([account, path, order, sorted(asked.items())], default=str)
    return hashlib.sha256(named.encode()).hexdigest()[:12]


def _write_cursor(name: str, values: Sequence[int]) -> str:
    return to_base64url(".".join([name, *map(str, values)]).encode())


def _read_cursor(cursor: str, name: str, count: int) -> tuple[int, ...]:
    raw = from_base64url(cursor.rstrip("=")) if cursor else b""
    try:
        found, *values = (raw or b"").decode().split(".")
        after = tuple(int(value) for value in values)
    except ValueError:
        found, after = "", ()
    if len(after) != count or not all(-_INT64 <= value < _INT64 for value in after):
        raise invalid("cursor", "is not a cursor of this service: take next_cursor of the page before")
    if found != name:
        raise invalid("cursor", "belongs to another list: keep the other parameters as on the page before")
    return after
