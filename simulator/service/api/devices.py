"""Devices, and how they are linked to a user: scan, register, remove (specification, "Onboarding")."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Final

from fastapi import Query
from pydantic_core import from_json, to_json
from starlette.responses import Response

from agent.errors import InvalidMessage, InvalidQr, InvalidSignature
from agent.wire.models import Device, DeviceStatus, JsonObject
from gateway.client import RegisterDevice
from simulator.service import scopes
from simulator.service.api.products import find_product, label_key, show_product
from simulator.service.db import insert, one, update
from simulator.service.errors import ApiError, conflict, not_found, too_large
from simulator.service.http import Call, CallDep, Json, Router, answers, created, extends, no_content
from simulator.service.paging import Page, PageQuery, page
from simulator.service.times import show_time, show_time_or_none
from simulator.wire import paths
from simulator.wire.limits import ONLINE_WITHIN_S, QR_BYTES
from simulator.wire.models import DeviceChange, ScanAnswer, ScanQr
from simulator.wire.qr import VERSION, LabelText, parse_label
from simulator.wire.qr.keys import LabelKey
from simulator.wire.qr.label import JSON

_CANCEL: Final = """
    UPDATE commands SET status = 'canceled', status_reason = 'the device was removed', completed_at = ?
    WHERE device = ? AND status IN ('queued', 'delivered', 'in_progress')
"""

router = Router(tag="devices", scope=scopes.DEVICES)
onboarding = Router(tag="onboarding", scope=scopes.ONBOARDING)


# --- stored devices ---------------------------------------------------------------------------------------------


def find_device(sql: sqlite3.Connection, account: int, device_id: str) -> sqlite3.Row:
    """The device of the account that is registered now.

    Raises:
        ApiError: 404 ``device_not_found``.
    """
    row = one(sql, "SELECT * FROM devices WHERE id = ? AND account = ? AND removed_at IS NULL", (device_id, account))
    if row is None:
        raise not_found("device", device_id)
    return row


def find_by_identifier(
    sql: sqlite3.Connection, account: int, product_id: str, device_identifier: str
) -> sqlite3.Row | None:
    """The registered device with this identifier."""
    statement = """SELECT * FROM devices
        WHERE account = ? AND product_id = ? AND device_identifier = ? AND removed_at IS NULL"""
    return one(sql, statement, (account, product_id, device_identifier))


def register(
    sql: sqlite3.Connection, account: int, request: RegisterDevice, device_id: str, now_ms: int
) -> tuple[sqlite3.Row, bool]:
    """Link a device of a product that is there to a user.

    Returns:
        The device, and whether it is new.

    Raises:
        ApiError: 409 ``device_already_registered``, to another user.
    """
    found = find_by_identifier(sql, account, request.product_id, request.device_identifier)
    if found is not None:
        if found["user_id"] != request.user_id:
            text = "This device is registered to another user; it must be removed there first."
            raise conflict("device_already_registered", text)
        return found, False
    user = (account, request.user_id, now_ms)
    sql.execute("INSERT OR IGNORE INTO users (account, id, created_at) VALUES (?, ?, ?)", user)
    insert(
        sql,
        "devices",
        id=device_id,
        account=account,
        product_id=request.product_id,
        user_id=request.user_id,
        device_name=request.device_name or request.device_identifier,
        device_identifier=request.device_identifier,
        qr_info=None if request.qr_info is None else to_json(request.qr_info).decode(),
        created_at=now_ms,
        updated_at=now_ms,
    )
    return find_device(sql, account, device_id), True


def show_device(row: sqlite3.Row, now_ms: int) -> JsonObject:
    """The device record. ``service.flush_seen()`` comes before the row is read."""
    return {
        "device_id": row["id"],
        "product_id": row["product_id"],
        "user_id": row["user_id"],
        "device_name": row["device_name"],
        "device_identifier": row["device_identifier"],
        "status": status_of(row["last_seen_at"], now_ms),
        "last_seen_at": show_time_or_none(row["last_seen_at"]),
        "firmware_version": row["firmware_version"],
        "metadata": {} if row["metadata"] is None else from_json(row["metadata"]),
        "created_at": show_time(row["created_at"]),
        "updated_at": show_time(row["updated_at"]),
    }


def status_of(last_seen_ms: int | None, now_ms: int) -> DeviceStatus:
    """Online within 120 s of being seen."""
    if last_seen_ms is None:
        return DeviceStatus.NEVER_SEEN
    return DeviceStatus.ONLINE if last_seen_ms >= online_since(now_ms) else DeviceStatus.OFFLINE


def online_since(now_ms: int) -> int:
    """Who was seen at this time or later is online now; milliseconds since the epoch."""
    return now_ms - ONLINE_WITHIN_S * 1000


# --- devices ----------------------------------------------------------------------------------------------------


class DeviceListQuery(PageQuery):
    """What a list of devices is narrowed to."""

    product_id: str | None = None
    user_id: str | None = None
    device_identifier: str | None = None
    status: DeviceStatus | None = None


@router.get(paths.DEVICES, response_model=Page[Device], responses=answers(404))
async def list_devices(call: CallDep, q: Annotated[DeviceListQuery, Query()]) -> Response:
    """Registered devices, in the order of registration. `status`: seen within 120 s, longer ago, or never."""
    if q.product_id is not None:
        find_product(call.db.sql, call.account, q.product_id)
    return _list(call, q, product_id=q.product_id, user_id=q.user_id, identifier=q.device_identifier, status=q.status)


def _list(
    call: Call,
    q: PageQuery,
    *,
    product_id: str | None = None,
    user_id: str | None = None,
    identifier: str | None = None,
    status: DeviceStatus | None = None,
) -> Response:
    call.service.flush_seen()
    now_ms = call.now_ms
    where = ["account = ?", "removed_at IS NULL"]
    values: list[object] = [call.account]
    for column, value in (("product_id", product_id), ("user_id", user_id), ("device_identifier", identifier)):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if status is DeviceStatus.NEVER_SEEN:
        where.append("last_seen_at IS NULL")
    elif status is not None:
        where.append("last_seen_at >= ?" if status is DeviceStatus.ONLINE else "last_seen_at < ?")
        values.append(online_since(now_ms))
    statement = f"SELECT * FROM devices WHERE {' AND '.join(where)}"
    return page(call, q, statement, values, show=lambda row: show_device(row, now_ms))


@router.get(paths.DEVICE, response_model=Device, responses=answers(404), openapi_extra=extends("single-records"))
async def get_device(call: CallDep, device_id: str) -> Response:
    """One registered device."""
    call.service.flush_seen()
    return Json(show_device(find_device(call.db.sql, call.account, device_id), call.now_ms))


@router.put(paths.DEVICE, response_model=Device, responses=answers(404), openapi_extra=extends("single-records"))
async def change_device(call: CallDep, device_id: str, body: DeviceChange) -> Response:
    """Change the given fields of a device: its name, its firmware version, its metadata."""
    call.service.flush_seen()
    values = body.model_dump(include=body.model_fields_set)
    if values.get("metadata") is not None:
        values["metadata"] = to_json(values["metadata"]).decode()
    with call.db.write() as sql:
        row = find_device(sql, call.account, device_id)
        update(sql, "devices", row["row"], **values, updated_at=call.now_ms)
    return Json(show_device(find_device(call.db.sql, call.account, device_id), call.now_ms))


# --- onboarding -------------------------------------------------------------------------------------------------


@onboarding.post(paths.SCAN_QR, response_model=ScanAnswer, responses=answers(404))
async def scan_qr(call: CallDep, body: ScanQr) -> Response:
    """What a QR label stands for, before anything is registered; changes nothing.

    400 is `validation_error`, `invalid_qr` or `invalid_signature`.
    """
    if len(body.qr_data.encode()) > QR_BYTES:
        raise too_large("qr_data", QR_BYTES)
    try:
        label = parse_label(body.qr_data)
    except InvalidQr as exc:
        raise ApiError(400, "invalid_qr", f"{exc} ({exc.reason})", details=[("qr_data", str(exc))]) from None
    product = find_product(call.db.sql, call.account, label.product_id)
    _check_signature(label, label_key(product))
    found = find_by_identifier(call.db.sql, call.account, label.product_id, label.device_identifier)
    qr_info: JsonObject = {"v": VERSION, "product_id": label.product_id, "device_identifier": label.device_identifier}
    if label.sig is not None:
        qr_info["sig"] = label.sig
    if label.profile != JSON:
        qr_info["profile"] = label.profile
    if label.host:
        qr_info["host"] = label.host
    return Json(
        {
            "product": show_product(product),
            "device_identifier": label.device_identifier,
            "qr_info": qr_info,
            "already_registered": found is not None,
        }
    )


def _check_signature(label: LabelText, key: str | None) -> None:
    """Refuse a label whose product signs its labels and that is not signed, or not by that key.

    A product without ``label_key`` has nothing to check by: its labels are taken signed or not.

    Raises:
        ApiError: 400 ``invalid_signature``.
    """
    if key is None:
        return
    try:
        LabelKey(key).check(label)
    except InvalidSignature as exc:
        raise ApiError(400, "invalid_signature", f"{exc} ({exc.reason})") from None
    except InvalidMessage as exc:
        raise ApiError(400, "invalid_signature", f"the product's label_key cannot be read: {exc}") from None


@onboarding.post(
    paths.ONBOARDING_DEVICES,
    status_code=201,
    response_model=Device,
    responses={200: {"model": Device, "description": "The device, which this user has already"}, **answers(404, 409)},
)
async def register_device(call: CallDep, body: RegisterDevice) -> Response:
    """Link a device to a user's account; the same registration again answers the same record."""
    call.service.flush_seen()
    with call.db.write() as sql:
        find_product(sql, call.account, body.product_id)
        row, is_new = register(sql, call.account, body, call.service.ids.next(), call.now_ms)
    record = show_device(row, call.now_ms)
    return created(record, paths.device(row["id"])) if is_new else Json(record)


@onboarding.get(paths.USER_DEVICES, response_model=Page[Device], responses=answers(404))
async def list_user_devices(call: CallDep, user_id: str, q: Annotated[PageQuery, Query()]) -> Response:
    """Devices of that user. 404 `user_not_found`: this user never registered a device."""
    if one(call.db.sql, "SELECT 1 FROM users WHERE account = ? AND id = ?", (call.account, user_id)) is None:
        raise not_found("user", user_id)
    return _list(call, q, user_id=user_id)


@onboarding.delete(paths.ONBOARDING_DEVICE, status_code=204, responses=answers(404))
async def remove_device(call: CallDep, device_id: str) -> Response:
    """Remove a device; its open commands are canceled and its identifier may be registered again."""
    with call.db.write() as sql:
        row = find_device(sql, call.account, device_id)
        sql.execute(_CANCEL, (call.now_ms, row["row"]))
        update(sql, "devices", row["row"], removed_at=call.now_ms, updated_at=call.now_ms)
        call.service.changed(row["row"])
    return no_content()
