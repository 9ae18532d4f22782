"""Sensor data (specification, "Devices, commands, sensor data").

This is the service's hot path: few steps for each request, and one write for many.
"""

from __future__ import annotations

import functools
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic_core import to_json
from sqlalchemy import Connection

from agent.errors import InvalidMessage
from agent.wire import paths
from agent.wire.base import describe_faults
from agent.wire.limits import BATCH_MAX
from agent.wire.sensor_data import PostSensorData
from agent.wire.times import parse_time
from simulator.service.answers import Answer, WriteResult, ok
from simulator.service.call import Call, check
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import Invalid, ServiceError, invalid
from simulator.service.ingest import IncomingReading, Stored
from simulator.service.paging import PAGE_PARAMETERS, read_int, read_page, take
from simulator.service.parameters import PAGING, TIME, text_filter
from simulator.service.records import BatchRecord, SensorDataBucketRecord, SensorDataRecord
from simulator.service.storage import buckets, devices, readings
from simulator.service.storage.buckets import Aggregation
from simulator.service.storage.readings import ReadingFilter
from simulator.service.times import show_time
from simulator.wire.messages import Aggregate

_TAG: Final = "sensor data"
_FILTERS: Final = frozenset({"device_id", "from", "to", "keys", "agg", "interval"})
_AGGREGATES: Final[tuple[Aggregate, ...]] = get_args(Aggregate)
INTERVAL_MAX_S: Final = 366 * 86_400
"""The longest bucket."""


async def post_sensor_data(call: Call) -> Answer:
    """Store one reading, or an array of them."""
    value = await call.json()
    if isinstance(value, list):
        return await _post_batch(call, value)
    message = check(PostSensorData, value)
    service = call.service
    reading = _new_reading(call, message, service.clock.now_ms())
    reading.answer = _stored_answer(reading)
    reading.key = call.request_key()
    size = len(call.body_bytes)
    await call.check_epoch()
    if reading.key is None:
        stored: Stored = await service.writer.submit_item(service.store_readings, reading, size)
    else:
        with service.running_keys.hold(reading.key):
            stored = await service.writer.submit_item(service.store_readings, reading, size)
    if stored.device_seq is not None:
        service.presence.touch(stored.device_seq, reading.received_at)
        if stored.changed:
            service.wake_devices(stored.changed)
    return stored.answer or reading.answer


def _new_reading(call: Call, message: PostSensorData, now_ms: int) -> IncomingReading:
    at = message.recorded_at
    return IncomingReading(
        manufacturer_seq=call.caller.manufacturer_seq,
        device_id=message.device_id,
        id=call.service.ids.next(),
        recorded_at=now_ms if at is None else round(parse_time(at) * 1000),
        received_at=now_ms,
        sensor_data=to_json(message.sensor_data).decode(),
    )


_ID_CHARACTERS: Final = 64
_known_segment = functools.lru_cache(maxsize=4096)(paths.segment)


def _segment(device_id: str) -> str:
    # An id of ours has 36 characters; of what somebody else may send in its place nothing is kept.
    return _known_segment(device_id) if len(device_id) <= _ID_CHARACTERS else paths.segment(device_id)


def _stored_answer(reading: IncomingReading) -> Answer:
    device_id = to_json(reading.device_id).decode()
    recorded_at = reading.recorded_at
    body = (
        f'{{"id":"{reading.id}","device_id":{device_id},"sensor_data":{reading.sensor_data},'
        f'"recorded_at":"{show_time(recorded_at)}","received_at":"{show_time(reading.received_at)}"}}'
    )
    query = f"device_id={_segment(reading.device_id)}&from={recorded_at}&to={recorded_at + 1}"
    return Answer(201, body.encode(), ((b"location", f"{paths.SENSOR_DATA}?{query}".encode()),))


async def _post_batch(call: Call, values: list[Any]) -> Answer:
    """Each reading by itself: one that is refused hides none of the others."""
    if not 0 < len(values) <= BATCH_MAX:
        raise invalid("body", f"an array must hold 1 to {BATCH_MAX} readings; this one holds {len(values)}")
    service, now_ms = call.service, call.service.clock.now_ms()
    items: dict[int, IncomingReading] = {}
    errors: dict[int, ServiceError] = {}
    for index, value in enumerate(values):
        try:
            items[index] = _new_reading(call, PostSensorData.model_validate(value), now_ms)
        except ValidationError as exc:
            errors[index] = Invalid("validation_error", describe_faults(exc))

    def store(connection: Connection) -> WriteResult:
        refused = dict(errors)
        outcomes = service.store_readings(connection, list(items.values())) if items else []
        changed: set[int] = set()
        for index, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, ServiceError):
                refused[index] = outcome
            elif outcome.device_seq is not None:
                service.presence.touch(outcome.device_seq, now_ms)
                changed.update(outcome.changed)
        listed = [{"index": i, "error": refused[i].error, "message": refused[i].message} for i in sorted(refused)]
        answer = ok({"accepted": len(values) - len(refused), "errors": listed})
        return WriteResult(answer, changed=tuple(changed), sent=bool(changed))

    return await call.write(store)


async def list_sensor_data(call: Call) -> Answer:
    """Stored readings."""
    query = call.query(PAGE_PARAMETERS | _FILTERS)
    page = read_page(call, query, default_order="desc", sort_values=2)
    keys = _read_keys(query.get("keys"))
    from_ms, to_ms = _read_time(query, "from"), _read_time(query, "to")
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise invalid("from", "must not be later than to")
    account, device_id = call.caller.manufacturer_seq, query.get("device_id")
    device_seq = None
    if device_id is not None:
        device_seq = (await call.service.look_up(lambda c: devices.find(c, account, device_id))).seq
    narrow = ReadingFilter(device_seq, from_ms, to_ms)
    asked = _read_aggregation(query, keys)
    if asked is not None:

        def sum_up(connection: Connection) -> Answer:
            found = buckets.list_page(connection, account, narrow, asked, page)
            return take(found, page, lambda bucket: bucket.record).answer(page, lambda bucket: bucket.place)

        return await call.service.summarise(sum_up)

    def find(connection: Connection) -> Answer:
        rows = readings.list_page(connection, account, narrow, page)
        part = take(rows, page, lambda row: readings.show(row, keys))
        return part.answer(page, lambda row: (row.recorded_at, row.seq))

    return await call.service.read(find)


def _read_aggregation(query: dict[str, str], keys: frozenset[str] | None) -> Aggregation | None:
    agg = query.get("agg")
    if agg is None and "interval" not in query:
        return None
    if agg is None or "interval" not in query:
        missing = "agg" if agg is None else "interval"
        raise invalid(missing, "agg and interval belong together: give both, or neither for the readings themselves")
    if agg not in _AGGREGATES:
        raise invalid("agg", f"must be one of: {', '.join(_AGGREGATES)}")
    interval_s = read_int(query, "interval", 0, low=1, high=INTERVAL_MAX_S)
    return Aggregation(agg, interval_s * 1000, keys)


def _read_keys(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    keys = frozenset(text.split(","))
    if "" in keys:
        raise invalid("keys", "must be names of readings, separated by commas")
    return keys


def _read_time(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        return round(parse_time(text) * 1000)
    except InvalidMessage as exc:
        raise invalid(name, str(exc)) from None


_INVALID: Final = Reply(400, "`validation_error`", ERROR)
_NO_DEVICE: Final = Reply(404, "`device_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        paths.SENSOR_DATA,
        post_sensor_data,
        "post_sensor_data",
        "Store a reading; an array of up to 500 with the extension `batch-sensor-data`",
        _TAG,
        (
            Reply(201, "The stored reading", SensorDataRecord, located=True),
            Reply(200, "What became of the array", BatchRecord),
            _INVALID,
            _NO_DEVICE,
        ),
        body=(PostSensorData, list[PostSensorData]),
    ),
    Endpoint(
        "GET",
        paths.SENSOR_DATA,
        list_sensor_data,
        "list_sensor_data",
        "Stored readings, by `recorded_at`, newest first; with `agg` and `interval` put together in buckets",
        _TAG,
        (
            Reply(
                200,
                "One page of readings, or of buckets",
                SensorDataRecord | SensorDataBucketRecord,
                listed=True,
            ),
            _INVALID,
            _NO_DEVICE,
        ),
        parameters=(
            text_filter("device_id", "Of this device"),
            Parameter("from", "From here on, inclusive: RFC 3339 or epoch milliseconds", TIME),
            Parameter("to", "Up to here, exclusive", TIME),
            Parameter(
                "keys",
                "These readings only, names separated by commas; a record that has none of them is left out, "
                "so a page may hold fewer than `limit`",
                {"type": "string", "pattern": "^[^,]+(,[^,]+)*$"},
            ),
            Parameter(
                "agg",
                "How the values of an interval are put together; needs `interval`",
                {"type": "string", "enum": [*_AGGREGATES]},
            ),
            Parameter(
                "interval",
                "Length of a bucket in seconds; buckets begin at multiples of it since 1970. Needs `agg`",
                {"type": "integer", "minimum": 1, "maximum": INTERVAL_MAX_S},
            ),
            *PAGING,
        ),
    ),
)
