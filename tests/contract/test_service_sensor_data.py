"""Sensor data over a real socket: single readings, batches, idempotency keys, and reading them back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.wire.auth import KeyPair
from agent.wire.sensor_data import PostSensorData
from simulator.wire.client import ServiceClient
from tests.service_running import T0_MS, running


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
        {"sensor_data": {"t": [1]}},
        {"sensor_data": {"": 1}},
        {"sensor_data": [1]},
        {"sensor_data": {"t": 1}, "recorded_at": "yesterday"},
        {"sensor_data": {"t": 1}, "recorded_at": "2026-01-01T00:00:00"},
        {"sensor_data": {"t": 1}, "recorded_at": 2**62},
        {"sensor_data": {"t": 1}, "recorded_at": 1.5},
        {"sensor_data": {"t": 1}, "recordedAt": 1},
        {"sensor_data": {"t": 1}, "device_id": ""},
        {"sensor_data": {"t": 1}, "device_id": 7},
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


def test_a_refused_request_leaves_its_key_free(bench):
    assert bench.post_reading("none", key="k").status_code == 404
    device_id = bench.device()
    assert bench.post_reading(device_id, key="k").status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_a_key_that_is_none_is_400(bench, key):
    device_id = bench.device()
    assert bench.post_reading(device_id, key=key).status_code == 400


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
    elsewhere = bench.http.post("/products", json={"name": "x"}, headers={"idempotency-key": "c"})
    assert elsewhere.status_code == 422


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
    paged, url = [], f"/sensor-data?device_id={one}&order=asc&limit=3"
    while url:
        answer = bench.http.get(url)
        paged += [row["sensor_data"]["i"] for row in answer.json()["data"]]
        url = answer.links["next"]["url"] if "next" in answer.links else None
    assert paged == ordered


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("device_id=none", 404),
        ("from=2&to=1", 400),
        ("from=x", 400),
        ("to=2026-13-01T00:00:00Z", 400),
        ("keys=", 400),
        ("keys=a,,b", 400),
        ("agg=avg", 400),
        ("device_id=%00", 400),
    ],
)
def test_a_bad_query_is_refused(bench, query, status):
    assert bench.http.get(f"/sensor-data?{query}").status_code == status


def test_the_agents_own_client_stores_and_reads(bench):
    device_id = bench.device()
    keys = KeyPair(bench.service.api_key, bench.service.secret_key)
    with ServiceClient(bench.service.base_url, keys) as service:
        readings = [
            PostSensorData(device_id=device_id, sensor_data={"i": i}, recorded_at=T0_MS + i) for i in range(250)
        ]
        assert service.post_sensor_data_batch(readings, idempotency_key="b").accepted == 250
        assert service.post_sensor_data_batch(readings, idempotency_key="b").accepted == 250
        stored = list(service.sensor_data(device_id=device_id, order="asc"))
    assert [record.sensor_data["i"] for record in stored] == list(range(250))
