"""Sensor data: the one table that many requests write to at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Connection, Row, and_, bindparam, insert, or_, select

from agent.wire.base import JsonObject
from simulator.service.answers import Answer, show_time
from simulator.service.faults import ServiceFault, not_found
from simulator.service.paging import Page, Rows
from simulator.service.storage import stored_answers
from simulator.service.storage.rows import stream
from simulator.service.storage.stored_answers import RequestKey
from simulator.service.storage.tables import devices, readings


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
        answer: what its request is answered, when it is a request of its own.
        key: its ``Idempotency-Key``, if it came with one.
    """

    manufacturer_seq: int
    device_id: str
    id: str
    recorded_at: int
    received_at: int
    sensor_data: str
    answer: Answer | None = None
    key: RequestKey | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a reading.

    Attributes:
        device_seq: its device's row; None when the answer was replayed.
        answer: for its request.
        changed: rows of devices that got commands of rules that it fired.
    """

    device_seq: int | None
    answer: Answer | None
    changed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadingFilter:
    """What a list of readings is narrowed to; times in milliseconds, None takes all."""

    device_seq: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None


_FIND_DEVICES: Final = select(devices.c.id, devices.c.manufacturer_seq, devices.c.seq).where(
    devices.c.id.in_(bindparam("ids", expanding=True)), devices.c.removed_at.is_(None)
)
_INSERT: Final = insert(readings)


def find_devices(connection: Connection, items: Sequence[NewReading]) -> dict[tuple[int, str], int]:
    """(account, device id) -> device row, for those that are registered."""
    ids = list({item.device_id for item in items})
    rows = connection.execute(_FIND_DEVICES, {"ids": ids})
    return {(manufacturer_seq, device_id): seq for device_id, manufacturer_seq, seq in rows}


def add(connection: Connection, items: Sequence[NewReading]) -> list[Stored | ServiceFault]:
    """Store readings of many requests; a fault for each whose device is not there."""
    known = find_devices(connection, items)
    keyed = [item for item in items if item.key is not None]
    if keyed:
        return _add_keyed(connection, items, known)
    results: list[Stored | ServiceFault] = []
    rows = []
    for item in items:
        device_seq = known.get((item.manufacturer_seq, item.device_id))
        if device_seq is None:
            results.append(not_found("device", item.device_id))
        else:
            rows.append(_row(item, device_seq))
            results.append(Stored(device_seq, item.answer))
    if rows:
        connection.execute(_INSERT, rows)
    return results


def _add_keyed(
    connection: Connection, items: Sequence[NewReading], known: dict[tuple[int, str], int]
) -> list[Stored | ServiceFault]:
    """As :func:`add`, where some carry an ``Idempotency-Key``: their answers are stored beside them."""
    found = _find_answers(connection, items)
    answers: list[tuple[RequestKey, Answer]] = []
    results: list[Stored | ServiceFault] = []
    rows = []
    for item in items:
        stored = found.get((item.manufacturer_seq, item.key.key)) if item.key else None
        if item.key is not None and stored is not None:
            results.append(_replay(item.key, stored))
            continue
        device_seq = known.get((item.manufacturer_seq, item.device_id))
        if device_seq is None:
            results.append(not_found("device", item.device_id))
            continue
        rows.append(_row(item, device_seq))
        if item.key is not None and item.answer is not None:
            answers.append((item.key, item.answer))
        results.append(Stored(device_seq, item.answer))
    if rows:
        connection.execute(_INSERT, rows)
    if answers:
        stored_answers.store(connection, answers, items[0].received_at)
    return results


def _find_answers(connection: Connection, items: Sequence[NewReading]) -> dict[tuple[int, str], Any]:
    by_account: dict[int, list[RequestKey]] = {}
    for item in items:
        if item.key is not None:
            by_account.setdefault(item.manufacturer_seq, []).append(item.key)
    now_ms = items[-1].received_at
    return {
        (account, key): row
        for account, keys in by_account.items()
        for key, row in stored_answers.find(connection, keys, now_ms).items()
    }


def _replay(key: RequestKey, row: Any) -> Stored | ServiceFault:
    try:
        return Stored(None, stored_answers.replay(key, row))
    except ServiceFault as fault:
        return fault


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


def list_page(connection: Connection, manufacturer_seq: int, narrow: ReadingFilter, page: Page) -> Rows[Row[Any]]:
    """Readings in the order of ``recorded_at``, one more than the page takes."""
    c = readings.c
    statement = select(readings, devices.c.id.label("device_id")).join(devices, devices.c.seq == c.device_seq)
    if narrow.device_seq is None:
        statement = statement.where(c.manufacturer_seq == manufacturer_seq, devices.c.removed_at.is_(None))
    else:
        statement = statement.where(c.device_seq == narrow.device_seq)
    if narrow.from_ms is not None:
        statement = statement.where(c.recorded_at >= narrow.from_ms)
    if narrow.to_ms is not None:
        statement = statement.where(c.recorded_at < narrow.to_ms)
    if page.after is not None:
        at, seq = page.after
        further = c.recorded_at > at if page.ascending else c.recorded_at < at
        beyond = c.seq > seq if page.ascending else c.seq < seq
        # The first condition is implied by the second; it lets the index skip to the place.
        reached = c.recorded_at >= at if page.ascending else c.recorded_at <= at
        statement = statement.where(reached, or_(further, and_(c.recorded_at == at, beyond)))
    order = (c.recorded_at, c.seq) if page.ascending else (c.recorded_at.desc(), c.seq.desc())
    return stream(connection, statement.order_by(*order).limit(page.limit + 1))
