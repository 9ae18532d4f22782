"""Devices (specification, "Devices, commands, sensor data")."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import StringConstraints, model_validator
from sqlalchemy import Connection

from agent.wire import paths
from agent.wire.base import JsonObject, Sent, Text
from agent.wire.devices import DeviceStatus
from simulator.service.answers import Answer, WriteResult, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import invalid
from simulator.service.paging import PAGE_PARAMETERS, Page, answer_list, read_page
from simulator.service.parameters import PAGING, SINGLE_RECORDS, text_filter
from simulator.service.records import DeviceRecord
from simulator.service.storage import devices, products
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
    if narrow.product_id is not None:
        account, product_id = call.caller.manufacturer_seq, narrow.product_id
        await call.service.look_up(lambda c: products.find(c, account, product_id))
    if narrow.status is not None:
        await call.service.flush_presence()
    return await list_filtered(call, narrow, page)


class DeviceChange(Sent):
    """``PUT /devices/{device_id}``: only the fields to change; null clears the two optional ones."""

    device_name: Text | None = None
    firmware_version: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    metadata: JsonObject | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give at least one of device_name, firmware_version, metadata")
        if "device_name" in self.model_fields_set and self.device_name is None:
            raise ValueError("device_name cannot be cleared: give a name or leave it out")
        return self


async def show_device(call: Call) -> Answer:
    """One registered device."""
    call.query(frozenset())
    service, account, device_id = call.service, call.caller.manufacturer_seq, call.path("device_id")
    row = await service.look_up(lambda c: devices.find(c, account, device_id))
    return ok(devices.show(row, service.presence.last_seen, service.clock.now_ms()))


async def change_device(call: Call) -> Answer:
    """Change the fields that are given."""
    change = await call.message(DeviceChange)
    service, account, device_id = call.service, call.caller.manufacturer_seq, call.path("device_id")
    now_ms = service.clock.now_ms()
    members = change.model_dump(include=change.model_fields_set)

    def write(connection: Connection) -> WriteResult:
        row = devices.change(connection, account, device_id, members, now_ms)
        return WriteResult(ok(devices.show(row, service.presence.last_seen, now_ms)))

    return await call.write(write)


async def list_filtered(call: Call, narrow: DeviceFilter, page: Page) -> Answer:
    """One page of registered devices."""
    service, now_ms = call.service, call.service.clock.now_ms()
    return await answer_list(
        call,
        page,
        lambda c: devices.list_page(c, call.caller.manufacturer_seq, narrow, page, now_ms),
        lambda row: devices.show(row, service.presence.last_seen, now_ms),
    )


_INVALID: Final = Reply(400, "`validation_error`", ERROR)
_NOT_FOUND: Final = Reply(404, "`device_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.DEVICES,
        list_devices,
        "list_devices",
        "Registered devices, in the order of registration",
        "devices",
        (Reply(200, "One page", DeviceRecord, listed=True), _INVALID, Reply(404, "`product_not_found`", ERROR)),
        parameters=(
            text_filter("product_id", "Of this product"),
            text_filter("user_id", "Of this user"),
            text_filter("device_identifier", "With this identifier"),
            Parameter("status", "Seen within 120 s, longer ago, or never", {"type": "string", "enum": [*DeviceStatus]}),
            *PAGING,
        ),
    ),
    Endpoint(
        "GET",
        paths.DEVICE,
        show_device,
        "show_device",
        "One registered device",
        "devices",
        (Reply(200, "The device", DeviceRecord), _INVALID, _NOT_FOUND),
        extension=SINGLE_RECORDS,
    ),
    Endpoint(
        "PUT",
        paths.DEVICE,
        change_device,
        "change_device",
        "Change the given fields of a device: its name, its firmware version, its metadata",
        "devices",
        (Reply(200, "The whole device", DeviceRecord), _INVALID, _NOT_FOUND),
        body=(DeviceChange,),
        extension=SINGLE_RECORDS,
    ),
)
