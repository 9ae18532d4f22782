"""Sensor data: storing readings, reading them back, and sums by interval (specification, "Sensor data")."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Body, Query
from pydantic import BeforeValidator, Field, SkipValidation, ValidationError, WithJsonSchema
from pydantic_core import from_json, to_json
from starlette.responses import Response

from agent.errors import InvalidMessage
from agent.wire import paths
from agent.wire.encoding import parse_time
from agent.wire.limits import BATCH_MAX, IDEMPOTENCY_S
from agent.wire.models import (
    TIME_RANGE_MS,
    BatchAnswer,
    JsonObject,
    KeyedReading,
    PostSensorData,
    SensorDataRecord,
    describe_faults,
    list_faults,
)
from agent.wire.server import KEY_REUSED
from simulator.service import scopes
from simulator.service.api.devices import find_device
from simulator.service.db import one
from simulator.service.errors import ApiError, invalid, invalid_all
from simulator.service.http import Call, CallDep, Json, Router, answers, hot
from simulator.service.paging import Page, PageQuery, page
from simulator.service.times import show_time
from simulator.wire.models import Aggregate, SensorDataBucket

if TYPE_CHECKING:
    from simulator.service.service import Service

router = Router(tag="sensor data", scope=scopes.DATA)

INTERVAL_MAX_S: Final = 366 * 86_400
"""The longest bucket."""
_INSERT: Final = """
    INSERT INTO readings (id, account, device, sensor_data, recorded_at, received_at) VALUES (?, ?, ?, ?, ?, ?)
"""


OneOrMany = SkipValidation[PostSensorData | list[KeyedReading]]
"""Checked by the handler: in an array each reading by itself."""


# --- storing ----------------------------------------------------------------------------------------------------


def store_reading(
    service: Service, sql: sqlite3.Connection, device: sqlite3.Row, reading: PostSensorData, now_ms: int
) -> JsonObject:
    """Store a reading of a device, and fire the rules that it meets; its record."""
    recorded_ms = _recorded_ms(reading, now_ms)
    reading_id, data = service.ids.next(), reading.sensor_data
    row = (reading_id, device["account"], device["row"], to_json(data).decode(), recorded_ms, now_ms)
    sql.execute(_INSERT, row)
    service.saw(device["row"])
    service.rules.observe(sql, device, data, recorded_ms)
    return {
        "id": reading_id,
        "device_id": device["id"],
        "sensor_data": data,
        "recorded_at": show_time(recorded_ms),
        "received_at": show_time(now_ms),
    }


async def _post_directly(call: Call) -> Response:
    return await post_sensor_data(call, await call.request.json())


@router.post(
    paths.SENSOR_DATA,
    status_code=201,
    response_model=SensorDataRecord,
    responses={200: {"model": BatchAnswer, "description": "What became of the array"}, **answers(404)},
)
@hot(_post_directly)
async def post_sensor_data(call: CallDep, body: Annotated[OneOrMany, Body()]) -> Response:
    """Store a reading; an array of up to 500 with the extension `batch-sensor-data`."""
    if isinstance(body, list):
        return _store_batch(call, body)
    try:
        reading = PostSensorData.model_validate(body)
    except ValidationError as exc:
        raise invalid_all(list_faults(exc)) from None
    now_ms = call.now_ms
    with call.db.write() as sql:
        device = find_device(sql, call.account, reading.device_id)
        record = store_reading(call.service, sql, device, reading, now_ms)
    at = _recorded_ms(reading, now_ms)
    query = f"device_id={device['id']}&from={at}&to={at + 1}"  # an id of our own, which needs no encoding
    return Json(record, 201, {"Location": f"{paths.SENSOR_DATA}?{query}"})


def _recorded_ms(reading: PostSensorData, now_ms: int) -> int:
    at = reading.recorded_at
    return now_ms if at is None else round(parse_time(at) * 1000)


def _store_batch(call: Call, values: list[Any]) -> Response:
    """Each reading by itself: one that is refused hides none of the others."""
    if not 0 < len(values) <= BATCH_MAX:
        raise invalid("body", f"an array must hold 1 to {BATCH_MAX} readings; this one holds {len(values)}")
    errors: list[JsonObject] = []
    with call.db.write() as sql:
        for index, value in enumerate(values):
            try:
                reading = KeyedReading.model_validate(value)
                device = find_device(sql, call.account, reading.device_id)
                if reading.idempotency_key is None or _is_new(call, sql, reading):
                    store_reading(call.service, sql, device, reading, call.now_ms)
            except ValidationError as exc:
                errors.append({"index": index, "error": "validation_error", "message": describe_faults(exc)})
            except ApiError as exc:
                errors.append({"index": index, "error": exc.error, "message": exc.message})
    return Json({"accepted": len(values) - len(errors), "errors": errors})


def _is_new(call: Call, sql: sqlite3.Connection, reading: KeyedReading) -> bool:
    """Whether no reading with this key was stored in the last 24 hours; notes the key (extension ``reading-keys``).

    Raises:
        ApiError: one was, and it was another.
    """
    fingerprint = hashlib.sha256(to_json(reading.to_wire())).digest()
    key, good_from_ms = reading.idempotency_key, call.now_ms - IDEMPOTENCY_S * 1000
    select = "SELECT fingerprint FROM reading_keys WHERE account = ? AND idempotency_key = ? AND created_at > ?"
    row = one(sql, select, (call.account, key, good_from_ms))
    if row is None:
        values = (call.account, key, fingerprint, call.now_ms)
        sql.execute("INSERT OR REPLACE INTO reading_keys VALUES (?, ?, ?, ?)", values)
        return True
    if row["fingerprint"] != fingerprint:
        text = "This idempotency_key was used for another reading; use a new key for a new reading."
        raise ApiError(422, KEY_REUSED, text)
    return False


# --- reading ----------------------------------------------------------------------------------------------------


def _read_time(value: object) -> object:
    try:
        return round(parse_time(value) * 1000) if isinstance(value, str) else value
    except InvalidMessage as exc:
        raise ValueError(str(exc)) from None


TimeMs = Annotated[
    int,
    BeforeValidator(_read_time),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", **TIME_RANGE_MS}]}),
]
"""A time of a query, RFC 3339 or epoch milliseconds, in milliseconds since the epoch."""


class ReadingListQuery(PageQuery):
    """What is read; with ``agg`` and ``interval`` it is put together in buckets."""

    device_id: str | None = None
    from_: TimeMs | None = Field(None, alias="from", description="From here on, inclusive")
    to: TimeMs | None = Field(None, description="Up to here, exclusive")
    keys: str | None = Field(
        None,
        pattern="^[^,]+(,[^,]+)*$",
        description="These readings only, names separated by commas; a record that has none of them is left out, "
        "so a page may hold fewer than `limit`",
    )
    agg: Aggregate | None = Field(None, description="How the values of an interval are put together; needs `interval`")
    interval: int | None = Field(
        None,
        ge=1,
        le=INTERVAL_MAX_S,
        description="Length of a bucket in seconds; buckets begin at multiples of it since 1970. Needs `agg`",
    )


@router.get(paths.SENSOR_DATA, response_model=Page[SensorDataRecord] | Page[SensorDataBucket], responses=answers(404))
async def list_sensor_data(call: CallDep, q: Annotated[ReadingListQuery, Query()]) -> Response:
    """Stored readings, by `recorded_at`, newest first; with `agg` and `interval` put together in buckets."""
    if q.from_ is not None and q.to is not None and q.from_ > q.to:
        raise invalid("from", "must not be later than to")
    if (q.agg is None) != (q.interval is None):
        missing = "agg" if q.agg is None else "interval"
        raise invalid(missing, "agg and interval belong together: give both, or neither for the readings themselves")
    where, values = _narrowed(call, q)
    keys = None if q.keys is None else frozenset(q.keys.split(","))
    if q.agg is not None and q.interval is not None:
        buckets = _Buckets(q.agg, q.interval * 1000, keys, where, values)
        return await call.db.aggregate(lambda sql: buckets.page(call, q, sql))
    statement = f"""
        SELECT *, (SELECT id FROM devices WHERE devices.row = readings.device) AS device_id
        FROM readings WHERE {where}
    """
    sort = ("recorded_at", "row")
    return page(call, q, statement, values, show=lambda row: _show(row, keys), default_order="desc", sort=sort)


def _narrowed(call: Call, q: ReadingListQuery) -> tuple[str, list[object]]:
    """The condition on ``readings``, and its values. Readings of removed devices are never among them."""
    if q.device_id is None:
        # Not a join: the index gives the order.
        where = "account = ? AND (SELECT removed_at FROM devices WHERE devices.row = readings.device) IS NULL"
        values: list[object] = [call.account]
    else:
        where, values = "device = ?", [find_device(call.db.sql, call.account, q.device_id)["row"]]
    for condition, value in (("recorded_at >= ?", q.from_), ("recorded_at < ?", q.to)):
        if value is not None:
            where += f" AND {condition}"
            values.append(value)
    return where, values


def _show(row: sqlite3.Row, keys: frozenset[str] | None) -> JsonObject | None:
    data: JsonObject = from_json(row["sensor_data"])
    if keys is not None:
        data = {name: value for name, value in data.items() if name in keys}
        if not data:
            return None
    return {
        "id": row["id"],
        "device_id": row["device_id"],
        "sensor_data": data,
        "recorded_at": show_time(row["recorded_at"]),
        "received_at": show_time(row["received_at"]),
    }


# --- buckets ----------------------------------------------------------------------------------------------------

# SQLite's sum of integers fails beyond 64 bits; as floating point it cannot.
_AGGREGATES: Final[dict[Aggregate, str]] = {
    "avg": "avg(CAST(member.value AS REAL))",
    "sum": "sum(CAST(member.value AS REAL))",
    "min": "min(member.value)",
    "max": "max(member.value)",
    "count": "count(member.value)",
}
# The years 1 to 9999, in milliseconds: an interval may reach beyond them on either side.
_FIRST_MS: Final = TIME_RANGE_MS["minimum"]
_LAST_MS: Final = TIME_RANGE_MS["maximum"]


class _Buckets:
    """Readings put together by interval and device: the database does the sums, a bucket may hold millions.

    Args:
        agg: how values are put together.
        interval_ms: length of a bucket; buckets begin at multiples of it since the epoch.
        keys: these readings only; None takes all.
        where, values: the condition on ``readings``.
    """

    def __init__(
        self, agg: Aggregate, interval_ms: int, keys: frozenset[str] | None, where: str, values: list[object]
    ) -> None:
        self._aggregate = _AGGREGATES[agg]
        self._interval_ms = interval_ms
        self._keys = sorted(keys or ())
        self._where, self._values = where, values
        self._of_keys = f"member.key IN ({', '.join('?' * len(self._keys))})" if keys is not None else "TRUE"

    def page(self, call: Call, q: ReadingListQuery, sql: sqlite3.Connection) -> Response:
        """The page that is asked for."""
        # A remainder has the sign of its dividend, and times may be negative.
        length = self._interval_ms
        begin = f"recorded_at - ((recorded_at % {length}) + {length}) % {length}"
        has_key = f"EXISTS (SELECT 1 FROM json_each(sensor_data) AS member WHERE {self._of_keys})"
        statement = f"""
            SELECT *, (SELECT id FROM devices WHERE devices.row = device) AS device_id
            FROM (
                SELECT {begin} AS begin, device, count(*) AS readings FROM readings
                WHERE {self._where} AND {has_key if self._keys else "TRUE"} GROUP BY begin, device
            ) WHERE TRUE
        """
        return page(
            call,
            q,
            statement,
            [*self._values, *self._keys],
            show=lambda row: self._show(sql, row),
            default_order="desc",
            sort=("begin", "device"),
            sql=sql,
        )

    def _show(self, sql: sqlite3.Connection, row: sqlite3.Row) -> JsonObject:
        end = row["begin"] + self._interval_ms
        statement = f"""
            SELECT member.key, {self._aggregate} AS number FROM readings, json_each(readings.sensor_data) AS member
            WHERE {self._where} AND device = ? AND recorded_at >= ? AND recorded_at < ? AND {self._of_keys}
            GROUP BY member.key ORDER BY member.key
        """
        found = sql.execute(statement, (*self._values, row["device"], row["begin"], end, *self._keys))
        return {
            "device_id": row["device_id"],
            "from": show_time(max(row["begin"], _FIRST_MS)),
            "to": show_time(min(end, _LAST_MS)),
            "sensor_data": {key: _finite(number) for key, number in found if number is not None},
            "count": row["readings"],
        }


def _finite(number: float) -> float:
    """A number as JSON can carry it: what left the range of floating point stands at its end."""
    if isinstance(number, float) and not math.isfinite(number):
        return math.copysign(sys.float_info.max, number)
    return number
