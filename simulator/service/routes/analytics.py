"""Analytics (specification, "Other groups"): figures computed from what is stored."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from agent.errors import InvalidMessage
from agent.wire import paths
from agent.wire.times import parse_time
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import invalid
from simulator.service.paging import read_int
from simulator.service.parameters import TIME
from simulator.service.records import DeviceAnalyticsRecord
from simulator.service.routes.sensor_data import INTERVAL_MAX_S
from simulator.service.storage import analytics
from simulator.service.storage.analytics import Span
from simulator.service.times import show_time

SPAN_DEFAULT_S: Final = 86_400
INTERVAL_DEFAULT_S: Final = 3_600
INTERVALS_MAX: Final = 1_000
_FIRST_MS: Final = -62_135_596_800_000


async def show_analytics(call: Call) -> Answer:
    """Devices now, messages and commands per interval."""
    query = call.query(frozenset({"from", "to", "interval"}))
    service, account = call.service, call.caller.manufacturer_seq
    now_ms = service.clock.now_ms()
    to_ms = _read_time(query, "to", now_ms)
    from_ms = _read_time(query, "from", max(to_ms - SPAN_DEFAULT_S * 1000, _FIRST_MS))
    interval_s = read_int(query, "interval", INTERVAL_DEFAULT_S, low=1, high=INTERVAL_MAX_S)
    if from_ms > to_ms:
        raise invalid("from", "must not be later than to")
    intervals = -((from_ms - to_ms) // (interval_s * 1000))
    if intervals > INTERVALS_MAX:
        fitting = -((from_ms - to_ms) // (INTERVALS_MAX * 1000))
        advice = f"give interval={fitting} or more" if fitting <= INTERVAL_MAX_S else "ask for a shorter time"
        raise invalid("interval", f"makes {intervals} intervals, and {INTERVALS_MAX} is the most: {advice}")
    span = Span(from_ms, to_ms, interval_s * 1000)
    await service.flush_presence()

    def count(connection: Connection) -> Answer:
        return ok(
            {
                **analytics.count_devices(connection, account, now_ms),
                "messages": analytics.count_messages(connection, account, span),
                "commands": analytics.count_commands(connection, account, span),
                "from": show_time(from_ms),
                "to": show_time(to_ms),
                "interval": interval_s,
            }
        )

    return await call.service.summarise(count)


def _read_time(query: dict[str, str], name: str, default_ms: int) -> int:
    text = query.get(name)
    if text is None:
        return default_ms
    try:
        return round(parse_time(text) * 1000)
    except InvalidMessage as exc:
        raise invalid(name, str(exc)) from None


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.DEVICE_ANALYTICS,
        show_analytics,
        "device_analytics",
        f"Devices by status now; readings (by `recorded_at`) and commands per interval, {INTERVALS_MAX} at most",
        "analytics",
        (Reply(200, "The figures", DeviceAnalyticsRecord), Reply(400, "`validation_error`", ERROR)),
        parameters=(
            Parameter("from", "Count from here on, inclusive; a day before `to` when it is missing", TIME),
            Parameter("to", "Count up to here, exclusive; now when it is missing", TIME),
            Parameter(
                "interval",
                "Length of an interval in seconds; the first begins at `from`",
                {"type": "integer", "minimum": 1, "maximum": INTERVAL_MAX_S, "default": INTERVAL_DEFAULT_S},
            ),
        ),
    ),
)
