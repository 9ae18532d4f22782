"""``/_emulator/device-table``: a window of all devices, searched and sorted by the service.

A person scrolls through one order of the devices, so the order of a query is kept for a few seconds, and a window of it
is read by row numbers: the hundred thousandth row costs as much as the first.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from typing_extensions import TypedDict

from agent.wire.devices import DeviceStatus
from simulator.console.changes import PERIOD_S, Changes
from simulator.console.device_rows import SORTS, DeviceQuery, DeviceRow, find_order, show_rows
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import invalid, not_found
from simulator.service.paging import read_int
from simulator.service.service import Service

PATH: Final = f"{CONTROL_PREFIX}device-table"
ROWS_MAX: Final = 200
_PARAMETERS: Final = frozenset({"q", "product_id", "status", "sort", "order", "offset", "limit", "api_key"})
_SEARCH_CHARACTERS: Final = 200
_OFFSET_MAX: Final = 10_000_000
KEPT_S: Final = 5.0
"""How long an order is kept: a device that is registered meanwhile appears that much later."""
_KEPT_MAX: Final = 16
_WINDOWS_MAX: Final = 64


class DeviceTableRecord(TypedDict):
    """Some of the devices that fit.

    Attributes:
        total: how many fit.
        offset: the place of the first row.
    """

    total: int
    offset: int
    data: list[DeviceRow]


class Orders:
    """Orders of devices that were found lately.

    Args:
        now_s: seconds of a clock that nobody sets.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._kept: OrderedDict[tuple[DeviceQuery, int, int], tuple[float, array[int]]] = OrderedDict()

    async def find(self, service: Service, wanted: DeviceQuery, registrations: int = 0) -> array[int]:
        """The order; at most :data:`KEPT_S` old, and of no other state of the service."""
        key = (wanted, service.epochs.number, registrations)
        made_s, order = self._kept.get(key, (float("-inf"), None))
        if order is not None and self._now_s() - made_s < KEPT_S:
            return order
        if wanted.status is not None or wanted.sort == "last_seen_at":
            await service.flush_presence()
        now_ms = service.clock.now_ms()
        order = await service.summarise(lambda connection: find_order(connection, wanted, now_ms))
        self._kept[key] = (self._now_s(), order)
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return order


class Windows:
    """Windows that were read lately: pages that look at the same rows share them until changes are looked for again.

    Args:
        changes: tells when that is.
        now_s: seconds of a clock that nobody sets.
    """

    def __init__(self, changes: Changes, now_s: Callable[[], float] = time.monotonic) -> None:
        self._changes = changes
        self._now_s = now_s
        self._turn = -1
        self._until_s = 0.0
        self._read: dict[Hashable, asyncio.Task[Answer]] = {}

    async def find(self, key: Hashable, read: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of this window; read once in each turn, and always where nobody follows the changes."""
        if not self._changes.is_followed:
            return await read()
        if self._turn != self._changes.turn or self._now_s() > self._until_s:
            self._turn = self._changes.turn
            self._until_s = self._now_s() + 2 * PERIOD_S  # where looking for changes fails
            self._read = {}
        if key not in self._read and len(self._read) < _WINDOWS_MAX:
            self._read[key] = asyncio.ensure_future(read())
        reading = self._read.get(key)
        return await (read() if reading is None else asyncio.shield(reading))


def make_endpoints(changes: Changes) -> tuple[Endpoint, ...]:
    """The endpoint, with orders and windows of its own.

    Args:
        changes: of the same service.
    """
    orders, windows = Orders(), Windows(changes)

    async def show(call: Call) -> Answer:
        """A window of the table."""
        service, query = call.service, call.query(_PARAMETERS)
        wanted = _read_wanted(call, query)
        offset = read_int(query, "offset", 0, low=0, high=_OFFSET_MAX)
        limit = read_int(query, "limit", 100, low=1, high=ROWS_MAX)

        async def read() -> Answer:
            order = await orders.find(service, wanted, changes.registrations)
            return await _read_window(service, order, offset, limit)

        return await windows.find((wanted, offset, limit, service.epochs.number), read)

    return (
        Endpoint(
            "GET",
            PATH,
            show,
            "show_device_table",
            "A window of all devices of an account with their last readings and open commands, searched and sorted",
            "control",
            (
                Reply(200, "The rows, and how many there are", DeviceTableRecord),
                Reply(400, "The query is not valid", ERROR),
                Reply(404, "No account has this key", ERROR),
                Reply(503, "The storage cannot be read", ERROR),
            ),
            parameters=(
                Parameter("q", "Text in the name, the identifier, the id or the product's name", {"type": "string"}),
                Parameter("product_id", "Of this product", {"type": "string"}),
                Parameter("status", "Seen within 120 s, longer ago, or never", _enum(*DeviceStatus)),
                Parameter("sort", "What to sort by; by default the order of registration", _enum(*SORTS)),
                Parameter("order", "`asc`, or `desc`", _enum("asc", "desc")),
                Parameter("offset", "So many rows are left out", {"type": "integer", "minimum": 0}),
                Parameter("limit", "Rows at most", {"type": "integer", "minimum": 1, "maximum": ROWS_MAX}),
                Parameter("api_key", "A key of the account that is meant; the first one's by default", _TEXT),
            ),
            public=True,
        ),
    )


async def _read_window(service: Service, order: array[int], offset: int, limit: int) -> Answer:
    window, now_ms = order[offset : offset + limit], service.clock.now_ms()
    rows = await service.read(lambda c: show_rows(c, window, service.presence.last_seen, now_ms)) if window else []
    record: DeviceTableRecord = {"total": len(order), "offset": offset, "data": rows}
    return ok(record, (b"cache-control", b"no-store"))


_TEXT: Final = {"type": "string"}


def _enum(*values: str) -> dict[str, object]:
    return {"type": "string", "enum": [str(value) for value in values]}


def _read_wanted(call: Call, query: dict[str, str]) -> DeviceQuery:
    """What the query asks for.

    Raises:
        ServiceError: a parameter cannot be used.
    """
    text, status = query.get("q", "").strip(), query.get("status")
    if len(text) > _SEARCH_CHARACTERS:
        raise invalid("q", f"must have at most {_SEARCH_CHARACTERS} characters")
    if status is not None and status not in list(DeviceStatus):
        raise invalid("status", f"must be one of: {', '.join(DeviceStatus)}")
    sort, order = query.get("sort", "registered"), query.get("order", "asc")
    if sort not in SORTS:
        raise invalid("sort", f"must be one of: {', '.join(SORTS)}")
    if order not in {"asc", "desc"}:
        raise invalid("order", "must be asc or desc")
    return DeviceQuery(
        account=account_of(call, query),
        text=text or None,
        product_id=query.get("product_id"),
        status=None if status is None else DeviceStatus(status),
        sort=sort,
        ascending=order == "asc",
    )


def account_of(call: Call, query: dict[str, str]) -> int:
    """The account that a control path is about: that of ``api_key``, of the page that asks, or the first one.

    Raises:
        NotFound: ``account_not_found``.
    """
    key = query.get("api_key")
    if key is None:
        return call.service.first_caller().manufacturer_seq if call.account is None else call.account
    caller = call.service.callers.get(key.encode())
    if caller is None:
        raise not_found("account", key, "on this service")
    return caller.manufacturer_seq
