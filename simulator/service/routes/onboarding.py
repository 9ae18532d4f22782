"""Onboarding (specification, "Onboarding" and "Device registration")."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from agent.errors import InvalidMessage, InvalidQr, InvalidSignature
from agent.wire import paths
from agent.wire.base import JsonObject
from agent.wire.limits import QR_BYTES
from agent.wire.registration import RegisterDevice
from simulator.service.answers import NO_CONTENT, Answer, WriteResult, created, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import Invalid, not_found, too_large
from simulator.service.paging import PAGE_PARAMETERS, read_page
from simulator.service.parameters import PAGING
from simulator.service.records import DeviceRecord, ScanRecord
from simulator.service.routes.devices import list_filtered
from simulator.service.storage import commands, devices, products, rule_states
from simulator.service.storage.devices import DeviceFilter
from simulator.wire.messages import ScanQr
from simulator.wire.qr import VERSION, LabelText, parse_label
from simulator.wire.qr.keys import LabelKey
from simulator.wire.qr.label import JSON

_TAG: Final = "onboarding"


async def scan_qr(call: Call) -> Answer:
    """What a QR label stands for; changes nothing."""
    request = await call.message(ScanQr)
    if len(request.qr_data.encode()) > QR_BYTES:
        raise too_large("qr_data", QR_BYTES)
    try:
        label = parse_label(request.qr_data)
    except InvalidQr as exc:
        raise Invalid("invalid_qr", f"{exc} ({exc.reason})", details=[("qr_data", str(exc))]) from None
    account = call.caller.manufacturer_seq
    if call.request_key() is not None:
        return await call.write(lambda c: WriteResult(_scan(c, account, label)))
    return await call.service.look_up(lambda c: _scan(c, account, label))


def _scan(connection: Connection, account: int, label: LabelText) -> Answer:
    row = products.find(connection, account, label.product_id)
    _check_signature(label, products.label_key(row))
    found = devices.find_by_identifier(connection, account, label.product_id, label.device_identifier)
    qr_info: JsonObject = {"v": VERSION, "product_id": label.product_id, "device_identifier": label.device_identifier}
    if label.sig is not None:
        qr_info["sig"] = label.sig
    if label.profile != JSON:
        qr_info["profile"] = label.profile
    if label.host:
        qr_info["host"] = label.host
    return ok(
        {
            "product": products.show(row),
            "device_identifier": label.device_identifier,
            "qr_info": qr_info,
            "already_registered": found is not None,
        }
    )


def _check_signature(label: LabelText, label_key: str | None) -> None:
    """Refuse a label whose product signs its labels and that is not signed, or not by that key.

    A product without ``label_key`` has nothing to check by: its labels are taken signed or not. A key that cannot be
    read, left by an older version of this service, takes none.

    Raises:
        Invalid: ``invalid_signature``.
    """
    if label_key is None:
        return
    try:
        LabelKey(label_key).check(label)
    except InvalidSignature as fault:
        raise Invalid("invalid_signature", f"{fault} ({fault.reason})") from None
    except InvalidMessage as fault:
        raise Invalid("invalid_signature", f"the product's label_key cannot be read: {fault}") from None


async def register_device(call: Call) -> Answer:
    """Link a device to a user's account."""
    request = await call.message(RegisterDevice)
    service, account = call.service, call.caller.manufacturer_seq
    device_id, now_ms = service.ids.next(), service.clock.now_ms()

    def register(connection: Connection) -> WriteResult:
        products.find(connection, account, request.product_id)
        row, is_new = devices.register(connection, account, request, device_id, now_ms)
        record = devices.show(row, service.presence.last_seen, now_ms)
        return WriteResult(created(record, paths.device(row.id)) if is_new else ok(record))

    return await call.write(register)


async def list_user_devices(call: Call) -> Answer:
    """Devices of one user."""
    page = read_page(call, call.query(PAGE_PARAMETERS), default_order="asc", sort_values=1)
    account, user_id = call.caller.manufacturer_seq, call.path("user_id")
    if not await call.service.look_up(lambda c: devices.user_exists(c, account, user_id)):
        raise not_found("user", user_id)
    return await list_filtered(call, DeviceFilter(user_id=user_id), page)


async def remove_device(call: Call) -> Answer:
    """Unlink a device from its user."""
    service, account = call.service, call.caller.manufacturer_seq
    device_id, now_ms = call.path("device_id"), service.clock.now_ms()

    def remove(connection: Connection) -> WriteResult:
        row = devices.find(connection, account, device_id)
        commands.cancel_open(connection, row.seq, now_ms)
        devices.remove(connection, row.seq, now_ms)
        rule_states.forget_device(connection, row.seq)
        return WriteResult(NO_CONTENT, changed=(row.seq,))

    return await call.write(remove)


_INVALID: Final = Reply(400, "`validation_error`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        paths.SCAN_QR,
        scan_qr,
        "scan_qr",
        "What a QR label stands for, before anything is registered",
        _TAG,
        (
            Reply(200, "The product and the device's identifier", ScanRecord),
            Reply(400, "`validation_error`, `invalid_qr` or `invalid_signature`", ERROR),
            Reply(404, "`product_not_found`", ERROR),
        ),
        body=(ScanQr,),
    ),
    Endpoint(
        "POST",
        paths.ONBOARDING_DEVICES,
        register_device,
        "register_device",
        "Link a device to a user's account; the same registration again answers the same record",
        _TAG,
        (
            Reply(201, "The device", DeviceRecord, located=True),
            Reply(200, "The device, which this user has already", DeviceRecord),
            _INVALID,
            Reply(404, "`product_not_found`", ERROR),
            Reply(409, "`device_already_registered`", ERROR),
        ),
        body=(RegisterDevice,),
    ),
    Endpoint(
        "GET",
        paths.USER_DEVICES,
        list_user_devices,
        "list_user_devices",
        "Devices of that user",
        _TAG,
        (
            Reply(200, "One page", DeviceRecord, listed=True),
            _INVALID,
            Reply(404, "`user_not_found`: this user never registered a device", ERROR),
        ),
        parameters=PAGING,
    ),
    Endpoint(
        "DELETE",
        paths.ONBOARDING_DEVICE,
        remove_device,
        "remove_device",
        "Remove a device; its open commands are canceled and its identifier may be registered again",
        _TAG,
        (Reply(204, "Removed"), Reply(404, "`device_not_found`", ERROR)),
    ),
)
