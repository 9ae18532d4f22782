"""Sensor data: the one table that many requests write to at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Connection, Row, Select, bindparam, insert, select

from agent.wire.base import JsonObject
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.tables import devices, readings
from simulator.service.times import show_time


@dataclass(frozen=True, slots=True)
class SensorDataRecord:
    """A stored reading as the service answers it; times are RFC 3339."""

    id: str
    device_id: str
    sensor_data: JsonObject
    recorded_at: str
    received_at: str


@dataclass(slots=True)
class NewReading:
    """A reading on its way into the table.

    Attributes:
        sensor_data: JSON text.
    """

    manufacturer_seq: int
    device_id: str
    id: str
    recorded_at: int
    received_at: int
    sensor_data: str


@dataclass(frozen=True, slots=True)
class ReadingFilter:
    """What a list of readings is narrowed to; times in milliseconds, None takes all."""

    device_seq: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def within_times(self, statement: Select[Any]) -> Select[Any]:
        """The statement, narrowed to the readings of these times."""
        if self.from_ms is not None:
            statement = statement.where(readings.c.recorded_at >= self.from_ms)
        if self.to_ms is not None:
            statement = statement.where(readings.c.recorded_at < self.to_ms)
        return statement


_FIND_DEVICES: Final = select(devices.c.id, devices.c.manufacturer_seq, devices.c.seq).where(
    devices.c.id.in_(bindparam("ids", expanding=True)), devices.c.removed_at.is_(None)
)
_INSERT: Final = insert(readings)


def add(connection: Connection, items: Sequence[NewReading]) -> list[int | None]:
    """Store readings of many requests; for each the row of its device, None where there is no such device."""
    found = connection.execute(_FIND_DEVICES, {"ids": list({item.device_id for item in items})})
    known = {(manufacturer_seq, device_id): seq for device_id, manufacturer_seq, seq in found}
    device_seqs = [known.get((item.manufacturer_seq, item.device_id)) for item in items]
    rows = [_row(item, seq) for item, seq in zip(items, device_seqs, strict=True) if seq is not None]
    if rows:
        connection.execute(_INSERT, rows)
    return device_seqs


def _row(item: NewReading, device_seq: int) -> dict[str, Any]:
    return {
        "id": item.id,
        "manufacturer_seq": item.manufacturer_seq,
        "device_seq": device_seq,
        "recorded_at": item.recorded_at,
        "received_at": item.received_at,
        "sensor_data": item.sensor_data,
    }


def show(row: Row[Any], keys: frozenset[str] | None) -> SensorDataRecord | None:
    """The record, with these readings only; None when it has none of them."""
    sensor_data: JsonObject = from_json(row.sensor_data)
    if keys is not None:
        sensor_data = {name: value for name, value in sensor_data.items() if name in keys}
        if not sensor_data:
            return None
    return SensorDataRecord(
        id=row.id,
        device_id=row.device_id,
        sensor_data=sensor_data,
        recorded_at=show_time(row.recorded_at),
        received_at=show_time(row.received_at),
    )


def list_page(connection: Connection, manufacturer_seq: int, narrow: ReadingFilter, window: Window) -> Rows[Row[Any]]:
    """Readings in the order of ``recorded_at``, one more than the window takes."""
    c = readings.c
    statement = select(readings, devices.c.id.label("device_id")).join(devices, devices.c.seq == c.device_seq)
    if narrow.device_seq is None:
        statement = statement.where(c.manufacturer_seq == manufacturer_seq, devices.c.removed_at.is_(None))
    else:
        statement = statement.where(c.device_seq == narrow.device_seq)
    return fetch(connection, narrow.within_times(statement), window, c.recorded_at, c.seq)
