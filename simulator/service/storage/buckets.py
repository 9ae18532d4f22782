"""Sensor data put together by interval: the database does the sums, so a bucket may hold millions of readings."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Float,
    Numeric,
    Row,
    Select,
    cast,
    func,
    literal_column,
    select,
    true,
)

from agent.wire.base import JsonObject
from agent.wire.limits import INT_MAX, INT_MIN
from simulator.service.storage.lists import Window, stream, within
from simulator.service.storage.readings import ReadingFilter
from simulator.service.storage.tables import devices, readings
from simulator.service.times import show_time
from simulator.wire.messages import Aggregate

# The years 1 to 9999, in milliseconds: an interval may reach beyond them on either side.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
_NONE: Final[tuple[None, Iterable[Any]]] = (None, ())


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What is asked for.

    Attributes:
        agg: how values are put together.
        interval_ms: length of a bucket; buckets begin at multiples of it since the epoch.
        keys: these readings only; None takes all.
    """

    agg: Aggregate
    interval_ms: int
    keys: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket, and its place in the list: (begin, device row)."""

    record: JsonObject
    place: tuple[int, int]


def list_page(
    connection: Connection, manufacturer_seq: int, narrow: ReadingFilter, asked: Aggregation, window: Window
) -> Generator[Bucket]:
    """Buckets in the order of time, one more than the window takes."""
    rows = connection.execute(_buckets(connection, manufacturer_seq, narrow, asked, window)).all()
    if not rows:
        return
    statement = _values(connection, manufacturer_seq, narrow, asked, rows, ascending=window.ascending)
    with stream(connection, statement) as values:
        groups = itertools.groupby(values, lambda value: (value.begin, value.device_seq))
        at, group = next(groups, _NONE)
        for row in rows:
            place = (row.begin, row.device_seq)
            # Buckets of the same devices and times that are not in the list come between.
            while at is not None and (at < place if window.ascending else at > place):
                at, group = next(groups, _NONE)
            found = (
                {value.key: _plain(value.number) for value in group if value.number is not None} if at == place else {}
            )
            yield Bucket(_show(row, found, asked), place)


def _show(row: Row[Any], values: dict[str, Any], asked: Aggregation) -> JsonObject:
    return {
        "device_id": row.device_id,
        "from": show_time(max(row.begin, _FIRST_MS)),
        "to": show_time(min(row.begin + asked.interval_ms, _LAST_MS)),
        "sensor_data": dict(sorted(values.items())),
        "count": row.readings,
    }


def _buckets(
    connection: Connection, manufacturer_seq: int, narrow: ReadingFilter, asked: Aggregation, window: Window
) -> Select[Any]:
    begin = _begin(asked.interval_ms)
    counted: Any = func.count()
    statement = select(begin.label("begin"), readings.c.device_seq, devices.c.id.label("device_id"))
    if asked.keys is not None:
        key, _ = members = _members()
        counted = func.count(readings.c.seq.distinct())
        statement = _joined(statement, members).where(key.in_(asked.keys))
    statement = statement.add_columns(counted.label("readings")).join(devices, devices.c.seq == readings.c.device_seq)
    statement = _narrowed(statement, manufacturer_seq, narrow)
    if window.after is not None:
        at = window.after[0]
        # Implied by the place; it lets the index skip there.
        reached = readings.c.recorded_at >= at if window.ascending else readings.c.recorded_at < at + asked.interval_ms
        statement = statement.where(reached)
    statement = statement.group_by(begin, readings.c.device_seq, devices.c.id)
    return within(statement, window, begin, readings.c.device_seq)


def _values(
    connection: Connection,
    manufacturer_seq: int,
    narrow: ReadingFilter,
    asked: Aggregation,
    shown: Sequence[Row[Any]],
    *,
    ascending: bool,
) -> Select[Any]:
    """The aggregate of each reading of the buckets of a window, in their order."""
    begin = _begin(asked.interval_ms)
    key, value = members = _members()
    statement = select(
        begin.label("begin"), readings.c.device_seq, key.label("key"), _AGGREGATES[asked.agg](value).label("number")
    )
    statement = _narrowed(_joined(statement, members), manufacturer_seq, narrow)
    if asked.keys is not None:
        statement = statement.where(key.in_(asked.keys))
    begins = [row.begin for row in shown]
    statement = statement.where(
        readings.c.recorded_at >= min(begins),
        readings.c.recorded_at < max(begins) + asked.interval_ms,
        readings.c.device_seq.in_({row.device_seq for row in shown}),
    )
    order: list[ColumnElement[Any]] = [begin, readings.c.device_seq]
    return statement.group_by(begin, readings.c.device_seq, key).order_by(
        *(order if ascending else [column.desc() for column in order])
    )


def _begin(interval_ms: int) -> ColumnElement[int]:
    """Where a reading's bucket begins. A remainder has the sign of its dividend, and times may be negative."""
    at = readings.c.recorded_at
    length = literal_column(str(int(interval_ms)), BigInteger)
    return at - ((at % length) + length) % length


def _members() -> tuple[ColumnElement[str], ColumnElement[Any]]:
    """Name and value of each member of ``sensor_data``; joining them makes a row of each."""
    pairs = func.json_each(readings.c.sensor_data).table_valued("key", "value", name="member")
    return pairs.c.key, pairs.c.value


def _joined(statement: Select[Any], members: tuple[ColumnElement[str], ColumnElement[Any]]) -> Select[Any]:
    return statement.select_from(readings).join(members[0].table, true())


def _narrowed(statement: Select[Any], manufacturer_seq: int, narrow: ReadingFilter) -> Select[Any]:
    c = readings.c
    if narrow.device_seq is None:
        present = select(devices.c.seq).where(
            devices.c.manufacturer_seq == manufacturer_seq, devices.c.removed_at.is_(None)
        )
        statement = statement.where(c.manufacturer_seq == manufacturer_seq, c.device_seq.in_(present))
    else:
        statement = statement.where(c.device_seq == narrow.device_seq)
    return narrow.within_times(statement)


# SQLite's sum of integers fails beyond 64 bits; as floating point it cannot.
_AGGREGATES: Final[dict[Aggregate, Any]] = {
    "avg": lambda value: func.avg(_real(value)),
    "sum": lambda value: func.sum(_real(value)),
    "min": func.min,
    "max": func.max,
    "count": func.count,
}


def _real(value: ColumnElement[Any]) -> ColumnElement[Any]:
    return value if isinstance(value.type, Numeric) and not isinstance(value.type, Float) else cast(value, Float)


def _plain(number: float | Decimal) -> int | float:
    """A number as JSON can carry it: what left the range of floating point stands at its end."""
    if isinstance(number, int):
        return number
    if isinstance(number, Decimal):
        if number == number.to_integral_value() and number.as_tuple().exponent == 0 and INT_MIN <= number <= INT_MAX:
            return int(number)
        number = float(number)
    return number if math.isfinite(number) else math.copysign(sys.float_info.max, number)
