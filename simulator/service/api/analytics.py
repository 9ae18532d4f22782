"""Analytics (specification, "Other groups"): figures computed from what is stored."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from agent.wire.models import TIME_RANGE_MS, JsonObject
from simulator.service import scopes
from simulator.service.api.readings import INTERVAL_MAX_S, TimeMs
from simulator.service.errors import invalid
from simulator.service.http import CallDep, Json, Router
from simulator.service.times import show_time
from simulator.wire import paths
from simulator.wire.limits import ONLINE_WITHIN_S
from simulator.wire.models import DeviceAnalytics

router = Router(tag="analytics", scope=scopes.ANALYTICS)

SPAN_DEFAULT_MS: Final = 86_400_000
INTERVAL_DEFAULT_S: Final = 3_600
INTERVALS_MAX: Final = 1_000


class AnalyticsQuery(BaseModel):
    """What is counted."""

    model_config = ConfigDict(extra="forbid")

    from_: TimeMs | None = Field(None, alias="from", description="Inclusive; a day before `to` when it is missing")
    to: TimeMs | None = Field(None, description="Exclusive; now when it is missing")
    interval: int = Field(
        INTERVAL_DEFAULT_S,
        ge=1,
        le=INTERVAL_MAX_S,
        description="Length of an interval in seconds; the first begins at `from`",
    )


@router.get(paths.DEVICE_ANALYTICS, response_model=DeviceAnalytics)
async def device_analytics(call: CallDep, query: Annotated[AnalyticsQuery, Query()]) -> Response:
    """Devices by status now; readings (by `recorded_at`) and commands per interval, 1,000 intervals at most."""
    now_ms, account = call.now_ms, call.account
    to_ms = now_ms if query.to is None else query.to
    from_ms = max(to_ms - SPAN_DEFAULT_MS, TIME_RANGE_MS["minimum"]) if query.from_ is None else query.from_
    if from_ms > to_ms:
        raise invalid("from", "must not be later than to")
    intervals = -((from_ms - to_ms) // (query.interval * 1000))
    if intervals > INTERVALS_MAX:
        fitting = -((from_ms - to_ms) // (INTERVALS_MAX * 1000))
        advice = f"give interval={fitting} or more" if fitting <= INTERVAL_MAX_S else "ask for a shorter time"
        raise invalid("interval", f"makes {intervals} intervals, and {INTERVALS_MAX} is the most: {advice}")
    call.service.flush_seen()

    def figures(sql: sqlite3.Connection) -> JsonObject:
        span = from_ms, to_ms, query.interval * 1000
        return {
            **_count_devices(sql, account, now_ms),
            "messages": _count(sql, "readings", "recorded_at", account, *span),
            "commands": _count(sql, "commands", "created_at", account, *span),
            "from": show_time(from_ms),
            "to": show_time(to_ms),
            "interval": query.interval,
        }

    return Json(await call.db.aggregate(figures))


def _count_devices(sql: sqlite3.Connection, account: int, now_ms: int) -> dict[str, Any]:
    """Registered devices: all of them, and by product in the order of the products' creation."""
    rows = sql.execute(
        """
        SELECT products.id AS product_id,
            count(devices.row) AS total,
            count(CASE WHEN last_seen_at >= :since THEN 1 END) AS online,
            count(CASE WHEN last_seen_at < :since THEN 1 END) AS offline,
            count(CASE WHEN devices.row NOTNULL AND last_seen_at IS NULL THEN 1 END) AS never_seen
        FROM products LEFT JOIN devices ON devices.product_id = products.id AND removed_at IS NULL
        WHERE products.account = :account GROUP BY products.row ORDER BY products.row
        """,
        {"account": account, "since": now_ms - ONLINE_WITHIN_S * 1000},
    )
    by_product = [dict(row) for row in rows]
    names = ("total", "online", "offline", "never_seen")
    return {**{name: sum(product[name] for product in by_product) for name in names}, "by_product": by_product}


def _count(
    sql: sqlite3.Connection, table: str, at: str, account: int, from_ms: int, to_ms: int, interval_ms: int
) -> list[JsonObject]:
    """Rows of devices that are registered now, by interval, the empty ones too."""
    rows = sql.execute(
        f"""
        SELECT ({at} - :begin) / :length AS number, count(*) AS count FROM {table}
        WHERE account = :account AND {at} >= :begin AND {at} < :end
            AND device NOT IN (SELECT row FROM devices WHERE account = :account AND removed_at NOTNULL)
        GROUP BY number
        """,
        {"account": account, "begin": from_ms, "end": to_ms, "length": interval_ms},
    )
    counts = {row["number"]: row["count"] for row in rows}
    begins = range(from_ms, to_ms, interval_ms)
    return [{"from": show_time(begin), "count": counts.get(index, 0)} for index, begin in enumerate(begins)]
