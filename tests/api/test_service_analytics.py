"""``GET /analytics/devices``: figures over what is stored."""

from __future__ import annotations

import pytest

from tests.support.service_running import T0_MS, running

HOUR_MS = 3_600_000


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def analytics(bench, **query):
    answer = bench.http.get("/analytics/devices", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(intervals):
    return [interval["count"] for interval in intervals]


def test_devices_are_counted_by_status_and_product(bench):
    lamps, doors, unused = bench.product(), bench.product(), bench.product()
    first, second = bench.device(lamps, "1"), bench.device(lamps, "2")
    bench.device(doors, "3")
    removed = bench.device(doors, "4")
    bench.http.delete(f"/onboarding/device/{removed}")
    bench.post_reading(first)
    bench.clock.advance(121)
    bench.post_reading(second)
    seen = analytics(bench)
    numbers = [{name: row[name] for name in ("total", "online", "offline", "never_seen")} for row in seen["by_product"]]
    assert [row["product_id"] for row in seen["by_product"]] == [lamps, doors, unused]
    assert numbers == [
        {"total": 2, "online": 1, "offline": 1, "never_seen": 0},
        {"total": 1, "online": 0, "offline": 0, "never_seen": 1},
        {"total": 0, "online": 0, "offline": 0, "never_seen": 0},
    ]
    assert [seen[name] for name in ("total", "online", "offline", "never_seen")] == [3, 1, 1, 1]


def test_messages_and_commands_fall_into_their_intervals(bench):
    device_id = bench.device()
    for hours in (0, 0.5, 2, 2.999, 3):
        bench.post_reading(device_id, recorded_at=T0_MS + int(hours * HOUR_MS))
    bench.send(device_id)
    bench.clock.advance(7200)
    bench.send(device_id)
    seen = analytics(bench, **{"from": T0_MS, "to": T0_MS + 3 * HOUR_MS, "interval": 3600})
    assert counts(seen["messages"]) == [2, 0, 2]
    assert counts(seen["commands"]) == [1, 0, 1]
    begins = [f"2026-01-01T0{hour}:00:00.000Z" for hour in range(3)]
    assert [row["from"] for row in seen["messages"]] == begins == [row["from"] for row in seen["commands"]]
    assert (seen["from"], seen["to"], seen["interval"]) == (begins[0], "2026-01-01T03:00:00.000Z", 3600)


def test_the_last_day_by_the_hour_is_what_one_gets_without_asking(bench):
    device_id = bench.device()
    bench.clock.advance(90)
    bench.post_reading(device_id, recorded_at=T0_MS)
    seen = analytics(bench)
    assert (seen["from"], seen["to"]) == ("2025-12-31T00:01:30.000Z", "2026-01-01T00:01:30.000Z")
    assert len(seen["messages"]) == 24
    assert counts(seen["messages"]) == [0] * 23 + [1]


def test_times_before_1970_and_an_empty_span_are_answered_too(bench):
    device_id = bench.device()
    bench.post_reading(device_id, recorded_at="1960-06-01T00:00:30Z")
    seen = analytics(bench, **{"from": "1960-06-01T00:00:00Z", "to": "1960-06-01T00:01:00Z", "interval": 20})
    assert counts(seen["messages"]) == [0, 1, 0]
    assert analytics(bench, **{"from": T0_MS, "to": T0_MS})["messages"] == []


def test_intervals_that_are_too_many_are_refused_with_what_would_do(bench):
    ages = {"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T00:00:00Z"}
    for query, says in (({"interval": "1"}, "give interval=87 or more"), (ages, "shorter")):
        answer = bench.http.get("/analytics/devices", params=query)
        (detail,) = answer.json()["details"]
        assert (answer.status_code, detail["field"]) == (400, "interval")
        assert says in detail["issue"]
