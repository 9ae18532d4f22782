"""``/_emulator/...``: the clock and resets."""

from __future__ import annotations

import pytest

from tests.support.service_running import client, running


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def _clock(bench):
    return bench.http.get("/_emulator/clock").json()


def _set(bench, **members):
    return bench.http.put("/_emulator/clock", json=members)


def _advance(bench, **members):
    return bench.http.post("/_emulator/clock/advance", json=members)


# --- the clock --------------------------------------------------------------------------------------------------


def test_the_clock_goes_with_the_machines_until_it_is_set_and_each_mode_goes_its_way():
    for setting, after_10_s in (
        ({"mode": "real"}, "2026-01-01T00:00:10.000Z"),
        ({"mode": "frozen", "time": "2027-05-01T12:00:00Z"}, "2027-05-01T12:00:00.000Z"),
        ({"mode": "frozen"}, "2026-01-01T00:00:00.000Z"),
        ({"mode": "offset", "offset_s": 60}, "2026-01-01T00:01:10.000Z"),
        ({"mode": "offset", "offset_s": -60}, "2025-12-31T23:59:10.000Z"),
        ({"mode": "offset", "time": "2026-02-01T00:00:00Z"}, "2026-02-01T00:00:10.000Z"),
    ):
        with running() as bench:
            at = "2026-01-01T00:00:00.000Z"
            assert _clock(bench) == {"time": at, "mode": "real", "system_time": at}
            assert _set(bench, **setting).json()["mode"] == setting["mode"]
            bench.clock.advance(10)
            assert _clock(bench)["time"] == after_10_s
            assert _set(bench, mode="real").json()["time"] == "2026-01-01T00:00:10.000Z"


def test_a_clock_that_cannot_be_is_400_and_changes_nothing(bench):
    for body in (
        {},
        {"mode": "scaled"},
        {"mode": "frozen", "rate": 2},
        {"mode": "offset"},
        {"mode": "offset", "time": "2026-02-01T00:00:00Z", "offset_s": 1},
        {"mode": "real", "time": "2026-02-01T00:00:00Z"},
        {"mode": "frozen", "time": "yesterday"},
        {"mode": "frozen", "time": "0001-01-01T00:00:00Z"},
        {"mode": "frozen", "time": "9999-12-31T00:00:00Z"},
    ):
        assert _set(bench, **body).status_code == 400, body
    for body in ({}, {"seconds": -1}, {"seconds": 1, "to": 5}, {"to": "2025-01-01T00:00:00Z"}):
        assert _advance(bench, **body).status_code == 400, body
    assert _clock(bench)["mode"] == "real"


def test_advancing_ends_commands_at_their_own_instants_before_it_answers(bench):
    device_id = bench.device()
    early = bench.send(device_id, ttl_seconds=10)
    late = bench.send(device_id, ttl_seconds=20)
    assert _set(bench, mode="frozen").status_code == 200
    assert _advance(bench, seconds=15).json()["time"] == "2026-01-01T00:00:15.000Z"
    assert bench.command(device_id, early)["status"] == "expired"
    assert bench.command(device_id, early)["completed_at"] == "2026-01-01T00:00:10.000Z"
    assert bench.command(device_id, late)["status"] == "queued"
    assert _set(bench, mode="frozen", time="2026-01-01T00:01:00Z").status_code == 200
    assert bench.command(device_id, late)["completed_at"] == "2026-01-01T00:00:20.000Z"


def test_presence_and_the_quota_go_by_the_same_clock():
    with running(rate_limit=6) as bench:
        device_id = bench.device()
        bench.poll(device_id)
        assert bench.http.get("/devices").json()["data"][0]["status"] == "online"
        _advance(bench, seconds=121)
        assert bench.http.get("/devices").json()["data"][0]["status"] == "offline"
        while bench.http.get("/products").status_code == 200:
            pass
        assert bench.http.get("/products").status_code == 429
        _advance(bench, seconds=60)
        assert bench.http.get("/products").status_code == 200


# --- resets -----------------------------------------------------------------------------------------------------


def test_a_reset_leaves_nothing_but_the_keys(bench):
    device_id = bench.device()
    bench.send(device_id)
    assert bench.post_reading(device_id).status_code == 201
    assert bench.http.post("/_emulator/reset").status_code == 204
    for path in ("/products", "/devices", "/sensor-data"):
        assert bench.http.get(path).json()["data"] == []


def test_a_reset_of_one_account_leaves_the_others_as_they_were(bench):
    other = bench.add_account("other")
    with client(bench.service, other.api_key, other.secret_key) as http:
        http.post("/products", json={"name": "theirs"})
        mine = bench.device()
        bench.poll(mine)
        assert bench.http.post("/_emulator/reset", params={"api_key": other.api_key}).status_code == 204
        assert http.get("/products").json()["data"] == []
    (device,) = bench.http.get("/devices").json()["data"]
    assert (device["device_id"], device["status"]) == (mine, "online")
    assert bench.http.post("/_emulator/reset", params={"api_key": "mk_nobody"}).status_code == 404


def test_a_device_registered_after_a_reset_was_never_seen(bench):
    bench.poll(bench.device())
    assert bench.http.post("/_emulator/reset", params={"api_key": bench.service.api_key}).status_code == 204
    record = bench.http.get(f"/devices/{bench.device()}").json()  # SQLite gives it the row number of the other one
    assert (record["status"], record["last_seen_at"]) == ("never_seen", None)


def test_an_identifier_of_more_than_512_characters_is_400(bench):
    product_id = bench.product()
    for length, status in ((512, 201), (513, 400)):
        text = "\N{CJK UNIFIED IDEOGRAPH-4E00}" * length
        body = {"user_id": text, "product_id": product_id, "device_identifier": text}
        assert bench.http.post("/onboarding/device", json=body).status_code == status


def test_a_reset_lets_the_clock_go_on(bench):
    bench.http.put("/_emulator/clock", json={"mode": "frozen", "time": "2030-01-01T00:00:00Z"})
    assert bench.http.post("/_emulator/reset").status_code == 204
    shown = bench.http.get("/_emulator/clock").json()
    assert (shown["mode"], shown["time"]) == ("real", shown["system_time"])


def test_a_quota_begins_anew_after_its_minute_although_the_clock_is_frozen_and_when_it_is_set_back():
    with running(rate_limit=2) as bench:
        bench.http.put("/_emulator/clock", json={"mode": "frozen"})
        statuses = [bench.http.get("/products").status_code for _ in range(3)]
        wait_s = int(bench.http.get("/products").headers["retry-after"])
        bench.clock.advance(wait_s)
        assert [*statuses, bench.http.get("/products").status_code] == [200, 200, 429, 200]
        while bench.http.get("/products").status_code == 200:
            pass
        bench.http.put("/_emulator/clock", json={"mode": "frozen", "time": "2025-06-01T00:00:00Z"})
        assert bench.http.get("/products").status_code == 200
