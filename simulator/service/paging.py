"""Lists: ``limit``, ``cursor``, ``order``, the envelope and its ``Link``."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from pydantic_core import to_json

from agent.wire.limits import PAGE_DEFAULT, PAGE_MAX
from simulator.service.answers import Answer, Header
from simulator.service.call import Call
from simulator.service.faults import invalid

PAGE_PARAMETERS: Final = frozenset({"limit", "cursor", "order"})
_INT64: Final = 2**63


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for.

    Attributes:
        limit: so many items at most.
        ascending: the order.
        after: the sort values of the last item of the page before; None on the first page.
        parameters: what was asked for, without ``cursor``.
        list_name: which list it is: a cursor of another list, account or filter is refused.
    """

    limit: int
    ascending: bool
    after: tuple[int, ...] | None
    parameters: Mapping[str, str]
    list_name: str
    path: str


def read_page(call: Call, query: Mapping[str, str], *, default_order: str, sort_values: int) -> Page:
    """The page that a query asks for.

    Args:
        call: the request.
        query: its parameters.
        default_order: ``asc`` or ``desc``.
        sort_values: how many numbers a cursor of this list holds.

    Raises:
        ServiceFault: 400.
    """
    order = query.get("order", default_order)
    if order not in {"asc", "desc"}:
        raise invalid("order", "must be asc or desc")
    limit = read_int(query, "limit", PAGE_DEFAULT, low=1, high=PAGE_MAX)
    filters = sorted((name, value) for name, value in query.items() if name not in PAGE_PARAMETERS)
    path: str = call.scope["path"]
    told = json.dumps([call.caller.manufacturer_seq, path, order, filters])
    list_name = hashlib.sha256(told.encode()).hexdigest()[:12]
    cursor = query.get("cursor")
    after = None if cursor is None else _read_cursor(cursor, list_name, sort_values)
    parameters = {name: value for name, value in query.items() if name != "cursor"}
    return Page(limit, order == "asc", after, parameters, list_name, path)


def read_int(query: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    """A whole number of a query."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):  # noqa: PLR2004
        raise invalid(name, f"must be a whole number from {low} to {high}")
    return int(text)


def envelope(data: Sequence[Any], page: Page, last: Sequence[int] | None) -> Answer:
    """The answer for one page.

    Args:
        data: the items.
        page: what was asked for.
        last: sort values of the last item when more follow, else None.
    """
    cursor = None if last is None else _write_cursor(page.list_name, last)
    # Item by item: while one call encodes, no other thread of the service runs.
    items = b",".join([to_json(item) for item in data])
    body = b'{"data":[%b],"next_cursor":%b,"has_more":%b}' % (items, to_json(cursor), to_json(cursor is not None))
    return Answer(200, body, () if cursor is None else (_link(page, cursor),))


def whole(data: Sequence[Any]) -> Answer:
    """The envelope of a list that is never cut."""
    return Answer(200, to_json({"data": data, "next_cursor": None, "has_more": False}))


def _link(page: Page, cursor: str) -> Header:
    query = urlencode({**page.parameters, "cursor": cursor})
    return b"link", f'<{page.path}?{query}>; rel="next"'.encode()


def _write_cursor(list_name: str, values: Sequence[int]) -> str:
    text = ".".join([list_name, *map(str, values)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str, list_name: str, sort_values: int) -> tuple[int, ...]:
    try:
        raw = cursor.encode("ascii")
        name, *values = (
            base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True).decode().split(".")
        )
        after = tuple(int(value) for value in values)
    except (ValueError, binascii.Error):
        raise invalid("cursor", "is not a cursor of this service: take next_cursor of the page before") from None
    if name != list_name or len(after) != sort_values or not all(-_INT64 <= value < _INT64 for value in after):
        raise invalid("cursor", "belongs to another list: keep the other parameters as on the page before")
    return after
