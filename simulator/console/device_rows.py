"""Devices as rows of a table: which ones, in which order, and what a row says. Reads, nothing else."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select
from typing_extensions import TypedDict

from agent.wire.base import JsonObject
from agent.wire.devices import DeviceStatus
from agent.wire.limits import ONLINE_WITHIN_S
from simulator.service.storage.commands import OPEN
from simulator.service.storage.devices import LastSeen, status_of
from simulator.service.storage.tables import commands, devices, products, readings
from simulator.service.times import show_time_or_none

NAME_CHARACTERS: Final = 200
"""What a row shows of a name; the whole of it is on the device's own page."""
_READING_CHARACTERS: Final = 4_096
_READING_MEMBERS: Final = 4


class DeviceRow(TypedDict):
    """A device in the table. Texts are cut after 200 characters; ``last_reading`` has four values at most."""

    device_id: str
    device_name: str
    device_identifier: str
    product_id: str
    product_name: str | None
    status: DeviceStatus
    last_seen_at: str | None
    last_reading_at: str | None
    last_reading: JsonObject | None
    open_commands: int
    firmware_version: str | None


@dataclass(frozen=True, slots=True)
class DeviceQuery:
    """Which devices, and in which order.

    Attributes:
        account: its row.
        text: to be found in name, identifier, id or the product's name; None for all.
        sort: one of :data:`SORTS`.
    """

    account: int
    text: str | None
    product_id: str | None
    status: DeviceStatus | None
    sort: str
    ascending: bool


_LAST_READING_AT: Final = (
    select(func.max(readings.c.recorded_at)).where(readings.c.device_seq == devices.c.seq).scalar_subquery()
)
_LAST_READING: Final = (
    select(readings.c.seq)
    .where(readings.c.device_seq == devices.c.seq)
    .order_by(readings.c.recorded_at.desc(), readings.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_OPEN_COMMANDS: Final = (
    select(func.count())
    .select_from(commands)
    .where(commands.c.device_seq == devices.c.seq, commands.c.status.in_(OPEN))
    .scalar_subquery()
)
_SORT_KEYS: Final[dict[str, ColumnElement[Any]]] = {
    "registered": devices.c.seq,
    "device_name": func.lower(devices.c.device_name),
    "device_identifier": func.lower(devices.c.device_identifier),
    "product_name": devices.c.product_id,
    "last_seen_at": func.coalesce(devices.c.last_seen_at, 0),
    "last_reading_at": func.coalesce(_LAST_READING_AT, 0),
    "open_commands": _OPEN_COMMANDS,
    "firmware_version": func.coalesce(devices.c.firmware_version, ""),
}
SORTS: Final = tuple(_SORT_KEYS)


def find_order(connection: Connection, wanted: DeviceQuery, now_ms: int) -> array[int]:
    """The rows of all devices that are wanted, in order."""
    c = devices.c
    names = _product_names(connection, wanted.account)
    key = _SORT_KEYS[wanted.sort]
    statement = select(c.seq, c.product_id).where(c.manufacturer_seq == wanted.account, c.removed_at.is_(None))
    if wanted.text is not None:
        statement = statement.where(_contains(wanted.text, names))
    if wanted.product_id is not None:
        statement = statement.where(c.product_id == wanted.product_id)
    if wanted.status is not None:
        statement = statement.where(_has_status(wanted.status, now_ms))
    order = (key, c.seq) if wanted.ascending else (key.desc(), c.seq.desc())
    if wanted.sort != "product_name":
        return array("q", connection.execute(statement.with_only_columns(c.seq).order_by(*order)).scalars())
    found = connection.execute(statement.order_by(c.seq if wanted.ascending else c.seq.desc()))
    by_name = sorted(found, key=lambda row: (names.get(row.product_id) or "").lower(), reverse=not wanted.ascending)
    return array("q", (row.seq for row in by_name))


def _contains(text: str, names: dict[str, str | None]) -> ColumnElement[bool]:
    c = devices.c
    wanted = text.lower()
    product_ids = [product_id for product_id, name in names.items() if name is not None and wanted in name.lower()]
    columns = (c.device_name, c.device_identifier, c.id)
    return or_(*(column.icontains(text, autoescape=True) for column in columns), c.product_id.in_(product_ids))


def _has_status(status: DeviceStatus, now_ms: int) -> ColumnElement[bool]:
    seen, since = devices.c.last_seen_at, now_ms - ONLINE_WITHIN_S * 1000
    if status is DeviceStatus.ONLINE:
        return seen >= since
    return seen.is_(None) if status is DeviceStatus.NEVER_SEEN else and_(seen.is_not(None), seen < since)


def _product_names(connection: Connection, account: int) -> dict[str, str | None]:
    c = products.c
    rows = connection.execute(select(c.id, c.definition).where(c.manufacturer_seq == account))
    return {row.id: from_json(row.definition).get("name") for row in rows}


def show_rows(connection: Connection, seqs: Sequence[int], last_seen: LastSeen, now_ms: int) -> list[DeviceRow]:
    """These devices, in this order, without those that were removed meanwhile."""
    c = devices.c
    statement = select(devices, _LAST_READING.label("last_reading"), _OPEN_COMMANDS.label("open_commands"))
    found = {row.seq: row for row in connection.execute(statement.where(c.seq.in_(seqs), c.removed_at.is_(None)))}
    names = _names_of(connection, {row.product_id for row in found.values()})
    newest = _find_readings(connection, [row.last_reading for row in found.values() if row.last_reading is not None])
    make = _RowMaker(names, newest, last_seen, now_ms)
    return [make(found[seq]) for seq in seqs if seq in found]


def _names_of(connection: Connection, product_ids: set[str]) -> dict[str, str | None]:
    c = products.c
    rows = connection.execute(select(c.id, c.definition).where(c.id.in_(product_ids)))
    return {row.id: from_json(row.definition).get("name") for row in rows}


def _find_readings(connection: Connection, seqs: Sequence[int]) -> dict[int, tuple[int, str | None]]:
    """Row -> when it was recorded, and its values; None for one that is too large to look into."""
    c = readings.c
    text = case((func.length(c.sensor_data) <= _READING_CHARACTERS, c.sensor_data))
    rows = connection.execute(select(c.seq, c.recorded_at, text).where(c.seq.in_(seqs)))
    return {seq: (recorded_ms, values) for seq, recorded_ms, values in rows}


@dataclass(frozen=True, slots=True)
class _RowMaker:
    names: dict[str, str | None]
    newest: dict[int, tuple[int, str | None]]
    last_seen: LastSeen
    now_ms: int

    def __call__(self, row: Any) -> DeviceRow:
        last_seen_ms = self.last_seen(row.seq, row.last_seen_at)
        name = self.names.get(row.product_id)
        recorded_ms, values = self.newest.get(row.last_reading, (None, None))
        return {
            "device_id": row.id,
            "device_name": _cut(row.device_name),
            "device_identifier": _cut(row.device_identifier),
            "product_id": row.product_id,
            "product_name": None if name is None else _cut(name),
            "status": status_of(last_seen_ms, self.now_ms),
            "last_seen_at": show_time_or_none(last_seen_ms),
            "last_reading_at": show_time_or_none(recorded_ms),
            "last_reading": None if values is None else dict(list(from_json(values).items())[:_READING_MEMBERS]),
            "open_commands": row.open_commands,
            "firmware_version": row.firmware_version,
        }


def _cut(text: str) -> str:
    return text if len(text) <= NAME_CHARACTERS else f"{text[: NAME_CHARACTERS - 1]}…"
