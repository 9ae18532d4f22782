"""Devices (specification, "Devices, commands, sensor data")."""

from __future__ import annotations

from typing import Final

from agent.wire import paths
from agent.wire.devices import DeviceStatus
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.faults import invalid
from simulator.service.paging import PAGE_PARAMETERS, Page, envelope, read_page
from simulator.service.records import DeviceRecord
from simulator.service.routes.parameters import PAGING, text_filter
from simulator.service.storage import devices
from simulator.service.storage.devices import DeviceFilter

_FILTERS: Final = frozenset({"product_id", "user_id", "device_identifier", "status"})


async def list_devices(call: Call) -> Answer:
    """Registered devices."""
    query = call.query(PAGE_PARAMETERS | _FILTERS)
    page = read_page(call, query, default_order="asc", sort_values=1)
    status = query.get("status")
    if status is not None and status not in list(DeviceStatus):
        raise invalid("status", f"must be one of: {', '.join(DeviceStatus)}")
    narrow = DeviceFilter(
        product_id=query.get("product_id"),
        user_id=query.get("user_id"),
        device_identifier=query.get("device_identifier"),
        status=None if status is None else DeviceStatus(status),
    )
    if narrow.status is not None:
        await call.service.flush_presence()
    return await list_filtered(call, narrow, page)


async def list_filtered(call: Call, narrow: DeviceFilter, page: Page) -> Answer:
    """One page of registered devices."""
    service, now_ms = call.service, call.service.clock.now_ms()
    rows = await call.read(lambda c: devices.list_page(c, call.caller.manufacturer_seq, narrow, page, now_ms))
    shown = rows[: page.limit]
    data = [devices.show(row, service.presence, now_ms) for row in shown]
    return envelope(data, page, (shown[-1].seq,) if len(rows) > len(shown) else None)


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.DEVICES,
        list_devices,
        "list_devices",
        "Registered devices, in the order of registration",
        "devices",
        (Reply(200, "One page", DeviceRecord, listed=True), Reply(400, "`validation_error`", ERROR)),
        parameters=(
            text_filter("product_id", "Of this product"),
            text_filter("user_id", "Of this user"),
            text_filter("device_identifier", "With this identifier"),
            Parameter("status", "Seen within 120 s, longer ago, or never", {"type": "string", "enum": [*DeviceStatus]}),
            *PAGING,
        ),
    ),
)
