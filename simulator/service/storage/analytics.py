"""Counts of devices, messages and commands over time, made by the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Connection, Table, case, func, literal_column, select

from agent.wire.base import JsonObject
from agent.wire.limits import ONLINE_WITHIN_S
from simulator.service.storage.tables import commands, devices, products, readings
from simulator.service.times import show_time


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when is counted, and in intervals of which length."""

    from_ms: int
    to_ms: int
    interval_ms: int


def count_devices(connection: Connection, manufacturer_seq: int, now_ms: int) -> JsonObject:
    """Registered devices: all of them, and by product in the order of the products' creation."""
    since = now_ms - ONLINE_WITHIN_S * 1000
    seen = devices.c.last_seen_at
    statement = (
        select(
            devices.c.product_id,
            func.count().label("total"),
            func.count(case((seen >= since, 1))).label("online"),
            func.count(case((seen < since, 1))).label("offline"),
        )
        .where(devices.c.manufacturer_seq == manufacturer_seq, devices.c.removed_at.is_(None))
        .group_by(devices.c.product_id)
    )
    counted = {row.product_id: row for row in connection.execute(statement)}
    order = select(products.c.id).where(products.c.manufacturer_seq == manufacturer_seq).order_by(products.c.seq)
    by_product = [
        {"product_id": product_id, **_numbers(counted.get(product_id))}
        for product_id in connection.execute(order).scalars()
    ]
    names = ("total", "online", "offline", "never_seen")
    return {**{name: sum(product[name] for product in by_product) for name in names}, "by_product": by_product}


def _numbers(row: Any) -> dict[str, int]:
    total, online, offline = (0, 0, 0) if row is None else (row.total, row.online, row.offline)
    return {"total": total, "online": online, "offline": offline, "never_seen": total - online - offline}


def count_messages(connection: Connection, manufacturer_seq: int, span: Span) -> list[JsonObject]:
    """Readings per interval, by ``recorded_at``."""
    return _count(connection, readings, readings.c.recorded_at, manufacturer_seq, span)


def count_commands(connection: Connection, manufacturer_seq: int, span: Span) -> list[JsonObject]:
    """Commands per interval, by the time that they were sent."""
    return _count(connection, commands, commands.c.created_at, manufacturer_seq, span)


def _of_devices_here(table: Table) -> ColumnElement[bool]:
    removed = select(devices.c.seq).where(devices.c.removed_at.is_not(None))
    return table.c.device_seq.not_in(removed)


def _count(
    connection: Connection,
    table: Table,
    at: Column[int],
    manufacturer_seq: int,
    span: Span,
) -> list[JsonObject]:
    """Intervals from the span's beginning on, the empty ones too, of the devices that are registered now."""
    begin, length = (literal_column(str(value), BigInteger) for value in (span.from_ms, span.interval_ms))
    number = ((at - begin) // length).label("number")
    statement = (
        select(number, func.count().label("rows"))
        .select_from(table)
        .where(
            table.c.manufacturer_seq == manufacturer_seq, at >= span.from_ms, at < span.to_ms, _of_devices_here(table)
        )
        .group_by(number)
    )
    found = {row.number: row.rows for row in connection.execute(statement)}
    begins = range(span.from_ms, span.to_ms, span.interval_ms)
    return [{"from": show_time(begin), "count": found.get(index, 0)} for index, begin in enumerate(begins)]
