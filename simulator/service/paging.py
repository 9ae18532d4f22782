"""Lists: ``limit``, ``cursor``, ``order``, the envelope and its ``Link``."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from agent.wire.limits import PAGE_MAX
from simulator.service.caller import headers_of
from simulator.service.errors import invalid
from simulator.service.http import Call, Json
from simulator.service.variant import ServerVariant
from simulator.wire.base64url import from_base64url, to_base64url
from simulator.wire.limits import PAGE_DEFAULT

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Items of a page, as JSON; a single item may be larger."""
WHOLE_ITEMS: Final = 100_000
"""Items of a list that is not paged at all."""
_INT64: Final = 2**63
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

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
    takes_out: bool = False,
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
        takes_out: what is on a page is not in the list any more: pages that are counted begin at the first item left.
    """
    sql, order = sql or call.db.sql, query.order or default_order
    direction = ", ".join(f"{column} {order}" for column in sort)
    limit, variant = query.limit, call.variant
    if variant is not None and "limit" not in query.model_fields_set:
        limit = variant.page_size
    if variant is not None and variant.paging in {"none", "page_number", "offset"}:
        if query.cursor is not None:
            raise invalid("cursor", "unknown query parameter")
        counted = sql.execute(f"SELECT count(*) FROM ({select})", values).fetchone()[0]
        first, size = _place_of(call, variant, limit if "limit" in query.model_fields_set else variant.page_size)
        statement = f"{select} ORDER BY {direction} LIMIT {size} OFFSET {0 if takes_out else first}"
        items = [item for row in sql.execute(statement, values) if (item := show(row)) is not None]
        return _counted_page(call, variant, items, first, size, counted + (first if takes_out else 0))
    path = call.request.scope["path"]
    asked = query.model_dump(exclude_unset=True, exclude={"cursor", "limit", "order"}, mode="json", by_alias=True)
    name = _list_name(call, path, order, asked)
    after = () if query.cursor is None else _read_cursor(query.cursor, name, len(sort))
    columns = ", ".join(sort)
    if after:
        select += f" AND ({columns}) {'>' if order == 'asc' else '<'} ({', '.join('?' * len(sort))})"
    texts: list[bytes] = []
    size = count = 0
    last: sqlite3.Row | None = None
    has_more = False
    with closing(sql.execute(f"{select} ORDER BY {direction} LIMIT ?", (*values, *after, limit + 1))) as rows:
        for row in rows:
            item = show(row) if count < limit else None
            text = b"" if item is None else to_json(item)
            size += len(text) + 1
            if count == limit or (size > PAGE_BYTES and texts):
                has_more = True
                break
            if text:
                texts.append(text)
            count, last = count + 1, row
    cursor = _write_cursor(name, [last[column] for column in sort]) if has_more and last is not None else None
    following = None
    if cursor is not None:
        given = {**query.model_dump(exclude_unset=True, mode="json", by_alias=True), "cursor": cursor}
        shown = {key: _text(value) for key, value in given.items() if value is not None}
        following = _address(call, shown)
    body = b'{"data":[%b]%b}' % (b",".join(texts), _members(variant, cursor, following))
    answer = Json(None)
    answer.is_list, answer.body = True, body
    answer.headers["content-length"] = str(len(body))
    has_link = variant is None or variant.paging in {"complete", "link_header"} or variant.list_shape == "bare"
    if following is not None and has_link:
        answer.headers["link"] = f'<{following}>; rel="next"'
    return answer


def _members(variant: ServerVariant | None, cursor: str | None, following: str | None) -> bytes:
    """The members of a list's envelope beside the items, as JSON text."""
    if variant is None or variant.paging == "complete":
        return b',"next_cursor":%b,"has_more":%b' % (to_json(cursor), to_json(cursor is not None))
    if variant.paging == "cursor":
        return b',"next_cursor":' + to_json(cursor)
    return b',"next":' + to_json(following) if variant.paging == "next_url" else b""


def _place_of(call: Call, variant: ServerVariant, size: int) -> tuple[int, int]:
    """How many items the pages before have, and how many this one may have."""
    if variant.paging == "none":
        return 0, size if size != variant.page_size else WHOLE_ITEMS
    given = call.request.scope.get("page_place")
    least = 1 if variant.paging == "page_number" else 0
    number = least if given is None else int(given) if _NUMBER.fullmatch(given) else -1
    if number < least:
        raise invalid("page" if least else "offset", f"must be a whole number from {least} to 999999999")
    return ((number - 1) * size, size) if least else (number, size)


def _counted_page(call: Call, variant: ServerVariant, items: list[Any], first: int, size: int, total: int) -> Json:
    """A page that says how many there are; nothing else leads on, but the link of a bare array."""
    value: dict[str, Any] = {"data": items}
    parameter, place, number = "offset", first + size, first // size + 1
    if variant.paging == "page_number":
        parameter, place = "page", number + 1
        value |= {"page": number, "per_page": size, "total": total, "total_pages": max(1, -(-total // size))}
    elif variant.paging == "offset":
        value |= {"offset": first, "limit": size, "total": total}
    answer = Json(value)
    answer.is_list = True
    if variant.paging != "none" and variant.list_shape == "bare" and first + size < total:
        answer.headers["link"] = f'<{_address(call, {parameter: str(place)})}>; rel="next"'
    return answer


def _address(call: Call, query: Mapping[str, str]) -> str:
    """Where the next page is: at this path, and of a variant with the host that the request was sent to."""
    scope = call.request.scope
    host = headers_of(scope).get(b"host") if call.variant is not None else None
    origin = "" if host is None else f"{scope['scheme']}://{host.decode('latin-1')}"
    return f"{origin}{scope['path']}?{urlencode(query)}"


def whole(call: Call, data: Sequence[Any]) -> Json:
    """The envelope of a list that is never cut."""
    variant = call.variant
    if variant is not None and variant.paging in {"none", "page_number", "offset"}:
        return _counted_page(call, variant, list(data), 0, max(1, len(data)), len(data))
    answer = Json(None)
    answer.body = b'{"data":%b%b}' % (to_json(data), _members(variant, None, None))
    answer.headers["content-length"] = str(len(answer.body))
    answer.is_list = True
    return answer


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
