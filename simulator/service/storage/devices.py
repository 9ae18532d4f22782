"""Devices and the users that they are linked to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, and_, bindparam, insert, select, update

from agent.wire.base import JsonObject
from agent.wire.devices import DeviceStatus
from agent.wire.limits import ONLINE_WITHIN_S
from agent.wire.registration import RegisterDevice
from simulator.service.errors import Conflict, NotFound, not_found
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.tables import devices, users
from simulator.service.times import show_time, show_time_or_none


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A device as the service answers it; times are RFC 3339."""

    device_id: str
    product_id: str
    user_id: str
    device_name: str
    device_identifier: str
    status: DeviceStatus
    last_seen_at: str | None
    firmware_version: str | None
    metadata: JsonObject
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """What a list of devices is narrowed to; None takes all."""

    product_id: str | None = None
    user_id: str | None = None
    device_identifier: str | None = None
    status: DeviceStatus | None = None


LastSeen = Callable[[int, int | None], int | None]
"""(device row, what is stored) -> when the device was last seen, written or not."""


def show(row: Row[Any], last_seen: LastSeen, now_ms: int) -> DeviceRecord:
    """The device record, as the wire has it."""
    last_seen_ms = last_seen(row.seq, row.last_seen_at)
    return DeviceRecord(
        device_id=row.id,
        product_id=row.product_id,
        user_id=row.user_id,
        device_name=row.device_name,
        device_identifier=row.device_identifier,
        status=status_of(last_seen_ms, now_ms),
        last_seen_at=show_time_or_none(last_seen_ms),
        firmware_version=row.firmware_version,
        metadata={} if row.metadata is None else from_json(row.metadata),
        created_at=show_time(row.created_at),
        updated_at=show_time(row.updated_at),
    )


def status_of(last_seen_ms: int | None, now_ms: int) -> DeviceStatus:
    """Online within 120 s of being seen."""
    if last_seen_ms is None:
        return DeviceStatus.NEVER_SEEN
    online = now_ms - last_seen_ms <= ONLINE_WITHIN_S * 1000
    return DeviceStatus.ONLINE if online else DeviceStatus.OFFLINE


_SEEN: Final = update(devices).where(devices.c.seq == bindparam("device_seq")).values(last_seen_at=bindparam("seen_ms"))


def mark_seen(connection: Connection, seen: Mapping[int, int]) -> None:
    """Write when devices were last seen: device row -> milliseconds since the epoch."""
    if seen:
        connection.execute(_SEEN, [{"device_seq": seq, "seen_ms": seen_ms} for seq, seen_ms in seen.items()])


def find(connection: Connection, manufacturer_seq: int, device_id: str) -> Row[Any]:
    """One device that is registered now.

    Raises:
        NotFound: ``device_not_found``.
    """
    row = connection.execute(
        select(devices).where(
            devices.c.id == device_id,
            devices.c.manufacturer_seq == manufacturer_seq,
            devices.c.removed_at.is_(None),
        )
    ).one_or_none()
    if row is None:
        raise not_found("device", device_id)
    return row


def find_anywhere(connection: Connection, device_id: str) -> Row[Any]:
    """One device that is registered now, of any account.

    Raises:
        NotFound: ``device_not_found``.
    """
    statement = select(devices).where(devices.c.id == device_id, devices.c.removed_at.is_(None))
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFound("device_not_found", f"No account has a device {device_id[:80]!r}.")
    return row


def find_products(connection: Connection, device_ids: Collection[str]) -> dict[str, str]:
    """Device id -> the product that it is of, whatever the account; without ids that no device has or ever had."""
    c = devices.c
    return {
        row.id: row.product_id for row in connection.execute(select(c.id, c.product_id).where(c.id.in_(device_ids)))
    }


def find_by_identifier(
    connection: Connection, manufacturer_seq: int, product_id: str, device_identifier: str
) -> Row[Any] | None:
    """The registered device with this identifier."""
    return connection.execute(
        select(devices).where(
            devices.c.manufacturer_seq == manufacturer_seq,
            devices.c.product_id == product_id,
            devices.c.device_identifier == device_identifier,
            devices.c.removed_at.is_(None),
        )
    ).one_or_none()


def register(
    connection: Connection, manufacturer_seq: int, request: RegisterDevice, device_id: str, now_ms: int
) -> tuple[Row[Any], bool]:
    """Link a device to a user; the product has been looked up.

    Returns:
        The device, and whether it is new.

    Raises:
        Conflict: ``device_already_registered``, to another user.
    """
    found = find_by_identifier(connection, manufacturer_seq, request.product_id, request.device_identifier)
    if found is not None:
        if found.user_id != request.user_id:
            raise Conflict(
                "device_already_registered",
                "This device is registered to another user; it must be removed there first.",
            )
        return found, False
    known = select(users.c.seq).where(users.c.manufacturer_seq == manufacturer_seq, users.c.id == request.user_id)
    if connection.execute(known).first() is None:
        connection.execute(
            insert(users).values(manufacturer_seq=manufacturer_seq, id=request.user_id, created_at=now_ms)
        )
    connection.execute(
        insert(devices).values(
            id=device_id,
            manufacturer_seq=manufacturer_seq,
            product_id=request.product_id,
            user_id=request.user_id,
            device_name=request.device_name or request.device_identifier,
            device_identifier=request.device_identifier,
            qr_info=None if request.qr_info is None else to_json(request.qr_info).decode(),
            created_at=now_ms,
            updated_at=now_ms,
        )
    )
    return find(connection, manufacturer_seq, device_id), True


def change(
    connection: Connection, manufacturer_seq: int, device_id: str, members: Mapping[str, Any], now_ms: int
) -> Row[Any]:
    """Set these members of a device; the device afterwards.

    Args:
        connection: of the transaction.
        manufacturer_seq: the account.
        device_id: which device.
        members: of ``device_name``, ``firmware_version`` and ``metadata``, with their new values.
        now_ms: milliseconds since the epoch.

    Raises:
        NotFound: ``device_not_found``.
    """
    row = find(connection, manufacturer_seq, device_id)
    values = dict(members)
    if values.get("metadata") is not None:
        values["metadata"] = to_json(values["metadata"]).decode()
    connection.execute(update(devices).where(devices.c.seq == row.seq).values(**values, updated_at=now_ms))
    return find(connection, manufacturer_seq, device_id)


def remove(connection: Connection, device_seq: int, now_ms: int) -> None:
    """Unlink a device: it is not found any more, and its identifier is free."""
    connection.execute(update(devices).where(devices.c.seq == device_seq).values(removed_at=now_ms, updated_at=now_ms))


def user_exists(connection: Connection, manufacturer_seq: int, user_id: str) -> bool:
    """Whether this user ever registered a device."""
    statement = select(users.c.seq).where(users.c.manufacturer_seq == manufacturer_seq, users.c.id == user_id)
    return connection.execute(statement).first() is not None


def list_page(
    connection: Connection, manufacturer_seq: int, narrow: DeviceFilter, window: Window, now_ms: int
) -> Rows[Row[Any]]:
    """Registered devices in the order of registration, one more than the window takes."""
    c = devices.c
    statement = select(devices).where(c.manufacturer_seq == manufacturer_seq, c.removed_at.is_(None))
    if narrow.product_id is not None:
        statement = statement.where(c.product_id == narrow.product_id)
    if narrow.user_id is not None:
        statement = statement.where(c.user_id == narrow.user_id)
    if narrow.device_identifier is not None:
        statement = statement.where(c.device_identifier == narrow.device_identifier)
    since = now_ms - ONLINE_WITHIN_S * 1000
    if narrow.status is DeviceStatus.ONLINE:
        statement = statement.where(c.last_seen_at >= since)
    elif narrow.status is DeviceStatus.OFFLINE:
        statement = statement.where(and_(c.last_seen_at.is_not(None), c.last_seen_at < since))
    elif narrow.status is DeviceStatus.NEVER_SEEN:
        statement = statement.where(c.last_seen_at.is_(None))
    return fetch(connection, statement, window, c.seq)
