"""Commands over a real socket: queue, poll, long poll, results, expiry."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.service_running import Bench, client, running


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def _ids(answer):
    return [record["id"] for record in answer.json()["data"]]


def test_a_poll_lists_open_commands_oldest_first_and_marks_them_delivered(bench):
    device_id = bench.device()
    sent = [bench.send(device_id, f"c{i}") for i in range(3)]
    bench.clock.advance(2)
    answer = bench.poll(device_id)
    assert _ids(answer) == sent
    assert {record["status"] for record in answer.json()["data"]} == {"delivered"}
    assert {record["delivered_at"] for record in answer.json()["data"]} == {"2026-01-01T00:00:02.000Z"}
    bench.clock.advance(1)
    again = bench.poll(device_id)
    assert again.json() == answer.json()  # still listed, and delivered once


def test_the_listing_without_status_is_newest_first_and_changes_nothing(bench):
    device_id = bench.device()
    sent = [bench.send(device_id) for _ in range(3)]
    answer = bench.http.get(f"/devices/{device_id}/commands")
    assert _ids(answer) == sent[::-1]
    assert {record["status"] for record in answer.json()["data"]} == {"queued"}
    assert bench.http.get(f"/devices/{device_id}/commands", params={"status": "delivered"}).json()["data"] == []


def test_a_poll_page_delivers_only_what_it_lists(bench):
    device_id = bench.device()
    first, second = bench.send(device_id), bench.send(device_id)
    answer = bench.poll(device_id, limit=1)
    assert _ids(answer) == [first]
    assert bench.command(device_id, second)["status"] == "queued"
    assert _ids(bench.http.get(answer.links["next"]["url"])) == [second]


def test_results_end_a_command_and_the_same_result_again_answers_the_same(bench):
    device_id = bench.device()
    command_id = bench.send(device_id)
    bench.poll(device_id)
    assert bench.report(device_id, command_id, "in_progress").json()["status"] == "in_progress"
    bench.clock.advance(3)
    ended = bench.report(device_id, command_id, "succeeded", result={"opened": True})
    assert ended.json()["status"] == "succeeded"
    assert ended.json()["completed_at"] == "2026-01-01T00:00:03.000Z"
    assert bench.report(device_id, command_id, "succeeded", result={"opened": True}).json() == ended.json()
    for other in (
        {"status": "failed"},
        {"status": "succeeded", "result": {"opened": False}},
        {"status": "in_progress"},
    ):
        refused = bench.http.post(f"/devices/{device_id}/commands/{command_id}/result", json=other)
        assert (refused.status_code, refused.json()["error"]) == (409, "command_not_open")
    assert bench.command(device_id, command_id) == ended.json()
    assert bench.poll(device_id).json()["data"] == []


def test_an_error_becomes_the_status_reason(bench):
    device_id = bench.device()
    for status in ("failed", "rejected"):
        answer = bench.report(device_id, bench.send(device_id), status, error="timed_out: 5 s")
        assert answer.json()["status_reason"] == "timed_out: 5 s"


def test_a_result_of_another_devices_command_is_404(bench):
    product_id = bench.product()
    one, other = bench.device(product_id, "a"), bench.device(product_id, "b")
    command_id = bench.send(one)
    assert bench.report(other, command_id, "succeeded").status_code == 404
    assert bench.http.get(f"/devices/{other}/commands/{command_id}").status_code == 404


def test_a_command_that_was_never_delivered_expires_at_its_time(bench):
    device_id = bench.device()
    command_id = bench.send(device_id, ttl_seconds=10)
    bench.clock.advance(9.999)
    assert bench.command(device_id, command_id)["status"] == "queued"
    bench.clock.advance(0.001)
    expired = bench.command(device_id, command_id)
    assert (expired["status"], expired["completed_at"]) == ("expired", "2026-01-01T00:00:10.000Z")
    assert bench.poll(device_id).json()["data"] == []
    assert bench.report(device_id, command_id, "succeeded").status_code == 409


def test_a_delivered_command_times_out_and_a_late_result_is_still_taken(bench):
    device_id = bench.device()
    command_id = bench.send(device_id, ttl_seconds=10)
    bench.poll(device_id)
    bench.clock.advance(11)
    assert bench.command(device_id, command_id)["status"] == "timed_out"
    assert bench.poll(device_id).json()["data"] == []
    assert bench.report(device_id, command_id, "in_progress").status_code == 409
    late = bench.report(device_id, command_id, "succeeded")
    assert (late.status_code, late.json()["status"]) == (200, "succeeded")


def test_expired_commands_make_room_in_the_queue(bench):
    device_id = bench.device()
    for _ in range(100):
        bench.send(device_id, ttl_seconds=5)
    body = {"device_id": device_id, "command_payload": {}}
    full = bench.http.post("/commands/send", json=body)
    assert (full.status_code, full.json()["error"]) == (409, "command_queue_full")
    bench.clock.advance(6)
    assert bench.http.post("/commands/send", json=body).status_code == 202


def test_a_payload_over_64_kib_is_413(bench):
    large = {"device_id": bench.device(), "command_payload": {"x": "y" * 65_536}}
    assert bench.http.post("/commands/send", json=large).status_code == 413


def test_an_unchanged_list_is_304_with_its_tag(bench):
    device_id = bench.device()
    bench.send(device_id)
    first = bench.poll(device_id)
    for tag in (first.headers["etag"], f"W/{first.headers['etag']}", f'"x", {first.headers["etag"]}', "*"):
        unchanged = bench.poll(device_id, tag)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["etag"] == first.headers["etag"]
    bench.send(device_id)
    assert bench.poll(device_id, first.headers["etag"]).status_code == 200


def test_a_held_poll_ends_with_304_when_its_time_is_over(bench):
    device_id = bench.device()
    tag = bench.poll(device_id).headers["etag"]
    began = time.monotonic()
    assert bench.poll(device_id, tag, wait=0.2).status_code == 304
    assert time.monotonic() - began >= 0.2
    assert bench.poll(device_id, wait=20).status_code == 200  # nothing known: there is nothing to wait for


def _held(bench: Bench, pool: ThreadPoolExecutor, device_id: str, tag: str):
    """A poll that the service holds."""

    def poll():
        with client(bench.service) as http:
            query = {"status": "open", "wait": 30}
            return http.get(f"/devices/{device_id}/commands", params=query, headers={"if-none-match": tag})

    held = pool.submit(poll)
    with pytest.raises(TimeoutError):
        held.result(0.3)
    return held


def test_a_held_poll_is_answered_when_a_command_comes(bench):
    device_id = bench.device()
    tag = bench.poll(device_id).headers["etag"]
    with ThreadPoolExecutor() as pool:
        held = _held(bench, pool, device_id, tag)
        command_id = bench.send(device_id)
        answer = held.result(60)
    assert answer.status_code == 200
    assert _ids(answer) == [command_id]
    assert answer.json()["data"][0]["status"] == "delivered"


def test_a_held_poll_hears_of_expiry_removal_and_the_end_of_the_service(bench):
    product_id = bench.product()
    first, second, third = (bench.device(product_id, name) for name in "abc")
    bench.send(first, ttl_seconds=5)
    tags = {device_id: bench.poll(device_id).headers["etag"] for device_id in (first, second, third)}
    with ThreadPoolExecutor() as pool:
        held = {device_id: _held(bench, pool, device_id, tag) for device_id, tag in tags.items()}
        bench.clock.advance(6)
        assert held[first].result(60).json()["data"] == []
        assert bench.http.delete(f"/onboarding/device/{second}").status_code == 204
        assert held[second].result(60).status_code == 404
        assert not held[third].done()
        began = time.monotonic()
        bench.service.stop()
        assert held[third].result(60).status_code == 304
        assert time.monotonic() - began < 25  # it was asked to hold it for 30 s


def test_a_command_is_not_delivered_to_a_held_poll_whose_caller_has_gone(bench, caplog):
    device_id = bench.device()
    tag = bench.poll(device_id).headers["etag"]
    with client(bench.service) as http:
        http.timeout = 0.3
        with pytest.raises(Exception, match="timed out"):
            http.get(f"/devices/{device_id}/commands?status=open&wait=20", headers={"if-none-match": tag})
    time.sleep(0.2)  # until the service has seen the connection end
    command_id = bench.send(device_id)
    sent = bench.command(device_id, command_id)
    assert (sent["status"], sent["delivered_at"]) == ("queued", None)
    assert _ids(bench.poll(device_id)) == [command_id]
    assert not [record for record in caplog.records if record.exc_info], "a caller that goes is no fault"


def test_a_poll_and_a_result_make_a_device_online(bench):
    device_id = bench.device()
    bench.http.get(f"/devices/{device_id}/commands")
    assert bench.http.get("/devices").json()["data"][0]["status"] == "never_seen"
    bench.poll(device_id)
    bench.clock.advance(120)
    assert bench.http.get("/devices?status=online").json()["data"][0]["last_seen_at"] == "2026-01-01T00:00:00.000Z"
    bench.clock.advance(0.001)
    assert bench.http.get("/devices").json()["data"][0]["status"] == "offline"
    assert bench.http.get("/devices?status=online").json()["data"] == []
    assert len(bench.http.get("/devices?status=offline").json()["data"]) == 1
    assert bench.http.get("/devices?status=never_seen").json()["data"] == []


VOCABULARY = [
    {"name": "ping"},
    {
        "name": "open_door",
        "payload_schema": {
            "type": "object",
            "properties": {"command": {"const": "open_door"}, "seconds": {"type": "integer", "minimum": 1}},
            "required": ["seconds"],
        },
    },
    {"name": "lost", "payload_schema": {"$ref": "http://schemas.invalid/nothing"}},
]


def test_the_vocabulary_decides_on_payloads_when_the_service_was_told_so(bench):
    with running(validate_commands=True) as strict:
        device_id = strict.device(strict.product(commands=VOCABULARY))
        for payload, status in (
            ({"command": "ping", "any": 1}, 202),
            ({"command": "open_door", "seconds": 5}, 202),
            ({"command": "open_door", "seconds": 0}, 400),
            ({"command": "open_door"}, 400),
            ({"command": "self_destruct"}, 400),
            ({"command": ["ping"]}, 400),
            ({"command": "lost"}, 400),
            ({}, 400),
        ):
            body = {"device_id": device_id, "command_payload": payload}
            assert strict.http.post("/commands/send", json=body).status_code == status, payload
    bench.send(bench.device(bench.product(commands=VOCABULARY)), "self_destruct")


def test_commands_survive_json_with_every_kind_of_value(bench):
    payload = {"a": [1, -1.5, 1e300, 2**63 - 1, None, True, {"ä": "\u2028'\"\\"}], "": {}}
    device_id = bench.device()
    bench.http.post("/commands/send", content=json.dumps({"device_id": device_id, "command_payload": payload}))
    assert bench.poll(device_id).json()["data"][0]["command_payload"] == payload
