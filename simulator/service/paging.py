"""Lists: ``limit``, ``cursor``, ``order``, the envelope and its ``Link``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from pydantic_core import to_json
from sqlalchemy import Connection

from agent.wire.limits import PAGE_DEFAULT, PAGE_MAX
from simulator.service.answers import Answer, Header
from simulator.service.call import Call
from simulator.service.errors import invalid
from simulator.service.storage.lists import Rows, Window
from simulator.wire.base64url import from_base64url, to_base64url

PAGE_PARAMETERS: Final = frozenset({"limit", "cursor", "order"})
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Items of a page, as JSON; a single item may be larger."""
PAGE_BYTES_HERE: Final = "service.page_bytes"
"""In the scope of a request: instead of :data:`PAGE_BYTES`."""
_INT64: Final = 2**63

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Page(Window):
    """The page of a list that a request asks for.

    Attributes:
        parameters: what was asked for, without ``cursor``.
        list_name: which list it is: a cursor of another list, account or filter is refused.
        max_bytes: of its items, as JSON.
    """

    parameters: Mapping[str, str]
    list_name: str
    path: str
    max_bytes: int


def read_page(call: Call, query: Mapping[str, str], *, default_order: str, sort_values: int) -> Page:
    """The page that a query asks for.

    Args:
        call: the request.
        query: its parameters.
        default_order: ``asc`` or ``desc``.
        sort_values: how many numbers a cursor of this list holds.

    Raises:
        Invalid: a parameter is not as announced.
    """
    order = query.get("order", default_order)
    if order not in {"asc", "desc"}:
        raise invalid("order", "must be asc or desc")
    limit = read_int(query, "limit", PAGE_DEFAULT, low=1, high=PAGE_MAX)
    filters = sorted((name, value) for name, value in query.items() if name not in PAGE_PARAMETERS)
    path: str = call.scope["path"]
    named = json.dumps([call.account, path, order, filters])
    list_name = hashlib.sha256(named.encode()).hexdigest()[:12]
    cursor = query.get("cursor")
    after = None if cursor is None else _read_cursor(cursor, list_name, sort_values)
    parameters = {name: value for name, value in query.items() if name != "cursor"}
    max_bytes = call.scope.get(PAGE_BYTES_HERE, PAGE_BYTES)
    return Page(limit, order == "asc", after, parameters, list_name, path, max_bytes)


def read_int(query: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    """A whole number of a query."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise invalid(name, f"must be a whole number from {low} to {high}")
    return int(text)


def by_seq(row: Any) -> tuple[int]:
    """The sort value of most lists."""
    return (row.seq,)


@dataclass(frozen=True, slots=True)
class Part(Generic[Row]):
    """The part of a list that one page shows.

    Attributes:
        items: JSON texts.
        rows: how many rows they were made of, with those that were left out.
        last: the last of these rows; None for none.
        has_more: rows follow.
    """

    items: Sequence[bytes]
    rows: int
    last: Row | None
    has_more: bool

    def answer(self, page: Page, place: Callable[[Row], tuple[int, ...]] = by_seq) -> Answer:
        """The answer for the page; ``place`` gives the sort values of a row."""
        cursor = _write_cursor(page.list_name, place(self.last)) if self.has_more and self.last is not None else None
        items = b",".join(self.items)
        body = b'{"data":[%b],"next_cursor":%b,"has_more":%b}' % (items, to_json(cursor), to_json(cursor is not None))
        return Answer(200, body, () if cursor is None else (_link(page, cursor),))


def take(rows: Rows[Row], page: Page, show: Callable[[Row], Any]) -> Part[Row]:
    """Take as many rows of a list as ``limit`` and :data:`PAGE_BYTES` let, one at least; no more are fetched.

    Args:
        rows: in the list's order, one more than the page takes where there are as many; closed here.
        page: what was asked for.
        show: the item of a row; None leaves it out.
    """
    items: list[bytes] = []
    size = count = 0
    last: Row | None = None
    with closing(rows):
        for row in rows:
            if count == page.limit:
                return Part(items, count, last, has_more=True)
            item = show(row)
            if item is not None:
                # Item by item: while one call encodes, no other thread of the service runs.
                text = to_json(item)
                size += len(text) + 1
                if size > page.max_bytes and items:
                    return Part(items, count, last, has_more=True)
                items.append(text)
            count, last = count + 1, row
    return Part(items, count, last, has_more=False)


async def answer_list(
    call: Call, page: Page, find: Callable[[Connection], Rows[Row]], show: Callable[[Row], Any]
) -> Answer:
    """The page of a list that is sorted by row number.

    Args:
        call: the request.
        page: what it asks for.
        find: the rows, see :func:`simulator.service.storage.lists.fetch`; runs in a reading thread.
        show: the item of a row.
    """
    return await call.service.read(lambda connection: take(find(connection), page, show).answer(page))


def whole(data: Sequence[Any]) -> Answer:
    """The envelope of a list that is never cut."""
    return Answer(200, to_json({"data": data, "next_cursor": None, "has_more": False}))


def _link(page: Page, cursor: str) -> Header:
    query = urlencode({**page.parameters, "cursor": cursor})
    return b"link", f'<{page.path}?{query}>; rel="next"'.encode()


def _write_cursor(list_name: str, values: Sequence[int]) -> str:
    text = ".".join([list_name, *map(str, values)])
    return to_base64url(text.encode())


def _read_cursor(cursor: str, list_name: str, sort_values: int) -> tuple[int, ...]:
    foreign = invalid("cursor", "is not a cursor of this service: take next_cursor of the page before")
    raw = from_base64url(cursor.rstrip("=")) if cursor else b""
    if raw is None:
        raise foreign
    try:
        name, *values = raw.decode().split(".")
        after = tuple(int(value) for value in values)
    except ValueError:
        raise foreign from None
    if name != list_name or len(after) != sort_values or not all(-_INT64 <= value < _INT64 for value in after):
        raise invalid("cursor", "belongs to another list: keep the other parameters as on the page before")
    return after
