"""Sensor data over a real socket: single readings, batches, idempotency keys, reading them back, and sums of them."""

from __future__ import annotations

import random
import sqlite3
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from simulator.service import service
from tests.api.golden_bodies import EXCHANGES, D, golden
from tests.support.service_running import T0_MS, client, running

TABLES_OF_KEYS = ("stored_answers", "reading_keys")


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def _stored(bench, **query):
    return bench.http.get("/sensor-data", params=query).json()["data"]


@pytest.mark.parametrize(
    "fields",
    [
        {"sensor_data": {}},
        {"sensor_data": {"t": "1"}},
        {"sensor_data": {"t": True}},
        {"sensor_data": {"t": None}},
        {"sensor_data": {"": 1}},
        {"sensor_data": [1]},
        {"sensor_data": {"t": 1}, "recorded_at": "yesterday"},
        {"sensor_data": {"t": 1}, "recorded_at": "2026-01-01T00:00:00"},
        {"sensor_data": {"t": 1}, "recorded_at": 2**62},
        {"sensor_data": {"t": 1}, "recordedAt": 1},
        {"sensor_data": {"t": 1}, "device_id": ""},
    ],
)
def test_a_reading_that_is_none_is_400_alone_and_an_error_of_its_own_in_a_batch(bench, fields):
    device_id = bench.device()
    bad = {"device_id": device_id, **fields}
    assert bench.http.post("/sensor-data", json=bad).status_code == 400
    good = {"device_id": device_id, "sensor_data": {"t": 1}}
    answer = bench.http.post("/sensor-data", json=[good, bad, good])
    assert answer.status_code == 200
    assert answer.json()["accepted"] == 2
    assert [(error["index"], error["error"]) for error in answer.json()["errors"]] == [(1, "validation_error")]
    assert len(_stored(bench)) == 2


def test_a_batch_takes_1_to_500_readings_and_names_unknown_devices(bench):
    device_id = bench.device()
    reading = {"device_id": device_id, "sensor_data": {"t": 1}}
    assert bench.http.post("/sensor-data", json=[]).status_code == 400
    assert bench.http.post("/sensor-data", json=[reading] * 501).status_code == 400
    assert bench.http.post("/sensor-data", json=[reading] * 500).json() == {"accepted": 500, "errors": []}
    mixed = bench.http.post("/sensor-data", json=[7, {**reading, "device_id": "none"}, reading]).json()
    assert mixed["accepted"] == 1
    assert [(error["index"], error["error"]) for error in mixed["errors"]] == [
        (0, "validation_error"),
        (1, "device_not_found"),
    ]


def test_a_reading_of_an_unknown_device_is_404_and_its_neighbours_are_stored(bench):
    device_id = bench.device()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: bench.post_reading(device_id if i % 2 else "none").status_code, range(60)))
    assert answers == [404, 201] * 30
    assert len(_stored(bench)) == 30


def test_times_are_taken_as_text_or_milliseconds_and_default_to_the_arrival(bench):
    device_id = bench.device()
    for given, shown in (
        ("2026-01-01T01:00:00.5+01:00", "2026-01-01T00:00:00.500Z"),
        (T0_MS + 1, "2026-01-01T00:00:00.001Z"),
        (None, "2026-01-01T00:00:00.000Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
    ):
        members = {} if given is None else {"recorded_at": given}
        answer = bench.post_reading(device_id, **members)
        assert answer.json()["recorded_at"] == shown
        assert bench.http.get(answer.headers["location"]).json()["data"] == [answer.json()]


def test_numbers_come_back_as_they_were_sent(bench):
    values = {"int": 21, "float": 21.0, "large": 2**63 - 1, "small": -(2**63), "tiny": 5e-324, "exact": 0.1}
    device_id = bench.device()
    bench.post_reading(device_id, sensor_data=values)
    assert _stored(bench, device_id=device_id)[0]["sensor_data"] == values


def test_the_same_idempotency_key_stores_once_and_answers_the_same(bench):
    device_id = bench.device()
    first = bench.post_reading(device_id, key="k-1")
    bench.clock.advance(60)
    again = bench.post_reading(device_id, key="k-1")
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert len(_stored(bench)) == 1
    assert bench.post_reading(device_id, key="k-2").status_code == 201
    assert len(_stored(bench)) == 2


def test_an_answer_is_replayed_for_24_hours(bench):
    device_id = bench.device()
    first = bench.post_reading(device_id, key="k")
    bench.clock.advance(86_399)
    assert bench.post_reading(device_id, key="k").json() == first.json()
    bench.clock.advance(1)
    assert bench.post_reading(device_id, key="k").json()["id"] != first.json()["id"]


def test_each_reading_of_an_array_may_have_a_key_and_is_stored_once_in_24_hours(bench):
    device_id = bench.device()

    def post(*readings):
        items = [{"device_id": device_id, "sensor_data": {"t": t}, "idempotency_key": key} for t, key in readings]
        return bench.http.post("/sensor-data", json=items).json()

    def stored():
        return sorted(one["sensor_data"]["t"] for one in bench.http.get("/sensor-data").json()["data"])

    assert post((1, "a"), (2, "b")) == {"accepted": 2, "errors": []}
    assert post((2, "b"), (3, "c"), (3, "c")) == {"accepted": 3, "errors": []}
    assert stored() == [1, 2, 3]
    (error,) = post((9, "a"), (4, "d"))["errors"]
    assert (error["index"], error["error"]) == (0, "idempotency_key_reused")
    assert stored() == [1, 2, 3, 4]
    other = bench.add_account("other")
    with client(bench.service, other.api_key, other.secret_key) as http:  # a key is its account's
        theirs = bench.of(http).device()
        item = {"device_id": theirs, "sensor_data": {"t": 1}, "idempotency_key": "a"}
        assert http.post("/sensor-data", json=[item]).json()["accepted"] == 1
        assert len(http.get("/sensor-data").json()["data"]) == 1
    refused = post((5, "")), post((5, "x" * 256)), post((5, "a b"))
    assert [answer["errors"][0]["error"] for answer in refused] == ["validation_error"] * 3
    alone = {"device_id": device_id, "sensor_data": {"t": 5}, "idempotency_key": "e"}
    assert bench.http.post("/sensor-data", json=alone).status_code == 400, "one alone has the header"
    bench.clock.advance(24 * 3600)
    assert post((1, "a"))["accepted"] == 1
    assert stored() == [1, 1, 2, 3, 4]


def test_keys_that_are_over_go_however_many_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "PRUNE_ROWS", 2)
    with running(data_dir=tmp_path) as bench:
        device_id = bench.device()
        items = [{"device_id": device_id, "sensor_data": {"t": n}, "idempotency_key": f"k{n}"} for n in range(7)]
        assert bench.http.post("/sensor-data", json=items, headers={"idempotency-key": "whole"}).json()["accepted"] == 7
        bench.clock.advance(24 * 3600 + 61)
        with closing(sqlite3.connect(tmp_path / "service.db")) as file:
            deadline_s = time.monotonic() + 60
            while any(file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES_OF_KEYS):
                assert time.monotonic() < deadline_s
                time.sleep(0.05)


def test_a_refused_request_leaves_its_key_free(bench):
    assert bench.post_reading("none", key="k").status_code == 404
    device_id = bench.device()
    assert bench.post_reading(device_id, key="k").status_code == 201


def test_one_key_sent_many_times_at_once_stores_once(bench):
    device_id = bench.device()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: bench.post_reading(device_id, key="k"), range(48)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert {answer.json()["error"] for answer in answers if answer.status_code == 409} <= {"idempotency_key_in_use"}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert len(_stored(bench)) == 1


def test_every_post_takes_a_key(bench):
    product_id, key = bench.product(), {"idempotency-key": "p"}
    schemas = f"/products/{product_id}/database/schemas"
    for _ in range(2):
        assert bench.http.post(schemas, json={"name": "x"}, headers={"idempotency-key": "s"}).status_code == 201
    made = [bench.http.post("/products", json={"name": "x"}, headers=key) for _ in range(2)]
    assert made[0].json() == made[1].json()
    assert made[0].headers["location"] == made[1].headers["location"]
    device_id = bench.device(product_id)
    body = {"device_id": device_id, "command_payload": {"command": "ping"}}
    sent = [bench.http.post("/commands/send", json=body, headers={"idempotency-key": "c"}).json() for _ in range(2)]
    assert sent[0]["id"] == sent[1]["id"]
    batch = [{"device_id": device_id, "sensor_data": {"t": 1}}] * 3
    for _ in range(2):
        answer = bench.http.post("/sensor-data", json=batch, headers={"idempotency-key": "b"})
        assert answer.json() == {"accepted": 3, "errors": []}
    assert len(_stored(bench)) == 3
    for path, other in (("/products", {"name": "x"}), ("/commands/send", {**body, "ttl_seconds": 5})):
        reused = bench.http.post(path, json=other, headers={"idempotency-key": "c"})
        assert (reused.status_code, reused.json()["error"]) == (422, "idempotency_key_reused")


def test_readings_are_listed_by_time_with_filters_and_pages(bench):
    product_id = bench.product()
    one, other = bench.device(product_id, "a"), bench.device(product_id, "b")
    for i in range(10):
        bench.post_reading(
            one, recorded_at=T0_MS + (i % 5) * 1000, sensor_data={"i": i, "even" if i % 2 == 0 else "odd": 1}
        )
    bench.post_reading(other)
    assert len(_stored(bench)) == 11
    ordered = [row["sensor_data"]["i"] for row in _stored(bench, device_id=one, order="asc")]
    assert ordered == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]
    assert [row["sensor_data"]["i"] for row in _stored(bench, device_id=one)] == ordered[::-1]
    between = _stored(bench, device_id=one, **{"from": T0_MS + 1000, "to": "2026-01-01T00:00:03Z", "order": "asc"})
    assert [row["sensor_data"]["i"] for row in between] == [1, 6, 2, 7]
    evens = _stored(bench, device_id=one, keys="even,none", order="asc")
    assert [row["sensor_data"] for row in evens] == [{"even": 1}] * 5


# --- sums over intervals ----------------------------------------------------------------------------------------

AGGREGATES = {"avg": statistics.fmean, "min": min, "max": max, "sum": sum, "count": len}


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


def test_a_sum_without_its_interval_and_an_interval_without_its_sum_are_400(bench):
    for query, field in (({"agg": "avg"}, "interval"), ({"interval": "60"}, "agg")):
        answer = bench.http.get("/sensor-data", params=query)
        assert (answer.status_code, [detail["field"] for detail in answer.json()["details"]]) == (400, [field])


def test_a_cursor_of_other_buckets_is_refused(bench):
    device_id = bench.device()
    for minute in range(3):
        bench.post_reading(device_id, recorded_at=T0_MS + minute * 60_000)
    cursor = bench.http.get("/sensor-data?agg=avg&interval=60&limit=1").json()["next_cursor"]
    for query in ("agg=avg&interval=30", "agg=sum&interval=60", "limit=1"):
        assert bench.http.get(f"/sensor-data?{query}&cursor={cursor}").status_code == 400
