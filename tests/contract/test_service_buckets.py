"""``GET /sensor-data`` with ``agg`` and ``interval``: the sums are right, to the last page."""

from __future__ import annotations

import random
import statistics
import sys

import pytest

from agent.wire.auth import KeyPair
from simulator.wire.client import ServiceClient
from tests.contract.test_service_golden import EXCHANGES, D, golden
from tests.service_running import T0_MS, running

AGGREGATES = {"avg": statistics.fmean, "min": min, "max": max, "sum": sum, "count": len}


@pytest.fixture(scope="module")
def shared():
    with running() as bench:
        yield bench


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def _buckets(bench, agg="avg", interval=60, **query):
    answer = bench.http.get("/sensor-data", params={"agg": agg, "interval": interval, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def test_buckets_answer_the_golden_body(bench):
    device_id = bench.device()
    for at, value in ((1_250, 21.5), (59_999, 22.0)):
        bench.post_reading(device_id, recorded_at=T0_MS + at, sensor_data={"temperature_c": value})
    query = {**EXCHANGES["read aggregated sensor data"]["query"], "device_id": device_id}
    answer = bench.http.get("/sensor-data", params=query)
    assert answer.status_code == 200
    seen = answer.json()
    seen["data"][0]["device_id"] = D
    assert seen == golden("sensor_data_buckets")


@pytest.mark.parametrize("agg", AGGREGATES)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_the_database_sums_as_python_does_page_after_page(bench, agg, order):
    numbers = random.Random(5)
    product_id = bench.product()
    device_ids = [bench.device(product_id, identifier=str(n)) for n in range(3)]
    expected: dict[tuple[int, str], list[dict]] = {}
    for device_id in device_ids:
        batch = []
        for _ in range(40):
            at = T0_MS + numbers.randrange(-300_000, 300_000)
            data = {name: numbers.choice([numbers.randrange(-9, 9), numbers.uniform(-9, 9)]) for name in "ab"}
            data = {name: value for name, value in data.items() if numbers.random() < 0.7} or {"a": 1}
            batch.append({"device_id": device_id, "recorded_at": at, "sensor_data": data})
            expected.setdefault((at // 30_000 * 30_000, device_id), []).append(data)
        assert bench.http.post("/sensor-data", json=batch).json()["accepted"] == 40
    seen, url = [], f"/sensor-data?agg={agg}&interval=30&limit=4&order={order}"
    while url:
        page = bench.http.get(url)
        assert len(page.json()["data"]) <= 4
        seen += page.json()["data"]
        url = page.links.get("next", {}).get("url")
    rank = {device_id: n for n, device_id in enumerate(device_ids)}
    keys = sorted(expected, key=lambda key: (key[0], rank[key[1]]), reverse=order == "desc")
    assert [bucket["device_id"] for bucket in seen] == [device_id for _, device_id in keys]
    for bucket, key in zip(seen, keys, strict=True):
        readings = expected[key]
        assert bucket["count"] == len(readings)
        names = {name for data in readings for name in data}
        values = {name: AGGREGATES[agg]([data[name] for data in readings if name in data]) for name in names}
        assert bucket["sensor_data"] == pytest.approx(values)
    for bucket in seen[::10]:
        assert bench.http.get("/sensor-data", params={"from": bucket["from"], "to": bucket["to"]}).json()["data"]


def test_ranges_and_keys_narrow_what_goes_in(bench):
    device_id = bench.device()
    for second, data in ((0, {"a": 1, "b": 10}), (10, {"b": 20}), (20, {"a": 3}), (30, {"c": 7})):
        bench.post_reading(device_id, recorded_at=T0_MS + second * 1000, sensor_data=data)
    (bucket,) = _buckets(bench, "sum", keys="a,b")
    assert (bucket["sensor_data"], bucket["count"]) == ({"a": 4, "b": 30}, 3)
    (bucket,) = _buckets(bench, "sum", **{"from": str(T0_MS + 10_000), "to": str(T0_MS + 30_000)})
    assert (bucket["sensor_data"], bucket["count"]) == ({"a": 3, "b": 20}, 2)
    assert bucket["from"] == "2026-01-01T00:00:00.000Z"  # the interval's begin, not the range's
    assert _buckets(bench, keys="d") == []
    assert _buckets(bench, **{"from": str(T0_MS + 60_000)}) == []


def test_numbers_and_names_at_the_edge_do_not_break_the_sum(bench):
    device_id = bench.device()
    name = "'; DROP TABLE readings; -- \"\\ é\n"
    for value in (2**63 - 1, 2**63 - 1):
        bench.post_reading(device_id, sensor_data={name: value, "inf": 1.7e308, "low": -(2**63)})
    for agg, expected in (("max", 2**63 - 1), ("min", 2**63 - 1), ("count", 2), ("sum", 2.0**64)):
        (bucket,) = _buckets(bench, agg)
        assert bucket["sensor_data"][name] == expected
    (bucket,) = _buckets(bench, "sum", keys="inf")
    assert bucket["sensor_data"]["inf"] == sys.float_info.max
    (bucket,) = _buckets(bench, keys=name)
    assert list(bucket["sensor_data"]) == [name]


def test_times_before_1970_and_at_the_ends_of_the_calendar_have_buckets(bench):
    device_id = bench.device()
    for at in ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"):
        bench.post_reading(device_id, recorded_at=at)
    buckets = _buckets(bench, "count", 366 * 86_400, order="asc")
    assert [bucket["count"] for bucket in buckets] == [1, 1, 1]
    assert buckets[0]["from"] == "0001-01-01T00:00:00.000Z"
    assert buckets[1]["to"] == "1970-01-01T00:00:00.000Z"
    assert buckets[2]["to"] == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"agg": "avg"}, "interval"),
        ({"interval": "60"}, "agg"),
        ({"agg": "median", "interval": "60"}, "agg"),
        ({"agg": "avg'; --", "interval": "60"}, "agg"),
        ({"agg": "avg", "interval": "0"}, "interval"),
        ({"agg": "avg", "interval": "-1"}, "interval"),
        ({"agg": "avg", "interval": "1.5"}, "interval"),
        ({"agg": "avg", "interval": str(2**70)}, "interval"),
        ({"agg": "avg", "interval": "60); DROP TABLE readings"}, "interval"),
        ({"agg": "avg", "interval": "60", "limit": "-1"}, "limit"),
        ({"agg": "avg", "interval": "60", "keys": "a,,b"}, "keys"),
    ],
)
def test_what_cannot_be_put_together_is_400_and_named(shared, query, field):
    answer = shared.http.get("/sensor-data", params=query)
    assert answer.status_code == 400
    assert [detail["field"] for detail in answer.json()["details"]] == [field]


def test_a_cursor_of_other_buckets_is_refused(bench):
    device_id = bench.device()
    for minute in range(3):
        bench.post_reading(device_id, recorded_at=T0_MS + minute * 60_000)
    cursor = bench.http.get("/sensor-data?agg=avg&interval=60&limit=1").json()["next_cursor"]
    for query in ("agg=avg&interval=30", "agg=sum&interval=60", "limit=1"):
        assert bench.http.get(f"/sensor-data?{query}&cursor={cursor}").status_code == 400


def test_the_client_reads_buckets(bench):
    device_id = bench.device()
    bench.post_reading(device_id)
    with ServiceClient(bench.service.base_url, KeyPair(bench.service.api_key, bench.service.secret_key)) as service:
        (bucket,) = service.sensor_data_buckets(device_id, agg="avg", interval_s=60)
    assert (bucket.from_, bucket.to, bucket.count) == (T0_MS / 1000, T0_MS / 1000 + 60, 1)
    assert bucket.sensor_data == {"t": 21.5}
