"""Devices that the service plays: ``/_emulator/devices``."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from simulator.service.control import devices as scripted
from tests.support.service_running import running

PATH = "/_emulator/devices"
SIGNALS = {"temperature": {"kind": "constant", "value": 20}}


@pytest.fixture(scope="module")
def bench():
    with running() as found:
        yield found


@pytest.fixture(autouse=True)
def _fresh(bench):
    yield
    assert bench.http.post("/_emulator/reset").status_code == 204


def freeze(bench):
    assert bench.http.put("/_emulator/clock", json={"mode": "frozen"}).status_code == 200


def advance(bench, seconds):
    answer = bench.http.post("/_emulator/clock/advance", json={"seconds": seconds})
    assert answer.status_code == 200, answer.text


def play(bench, device_id, status=201, **script):
    answer = bench.http.post(PATH, json={"device_id": device_id, **script})
    assert answer.status_code == status, answer.text
    return answer.json()


def until(look, wanted):
    deadline_s = time.monotonic() + 60
    while (found := look()) != wanted:
        assert time.monotonic() < deadline_s, found
        threading.Event().wait(0.01)


def status(bench, device_id, command_id):
    return bench.command(device_id, command_id)["status"]


def test_what_a_device_does_at_once_is_done_when_the_clock_has_been_moved(bench):
    device_id = bench.device()
    play(bench, device_id)
    for _ in range(15):
        command_id = bench.send(device_id)
        advance(bench, 1)
        assert status(bench, device_id, command_id) == "succeeded"


def test_without_answers_every_command_succeeds_at_once_and_the_device_is_online(bench):
    device_id = bench.device()
    shown = play(bench, device_id)
    assert shown["script"]["answers"] == [{"status": "succeeded"}]
    command_id = bench.send(device_id)
    until(lambda: status(bench, device_id, command_id), "succeeded")
    device = bench.http.get("/devices").json()["data"][0]
    assert device["status"] == "online"
    until(
        lambda: {k: bench.http.get(f"{PATH}/{device_id}").json()[k] for k in ("delivered", "reported", "open")},
        {"delivered": 1, "reported": 1, "open": []},
    )


def test_commands_that_wait_already_are_answered_when_the_script_begins(bench):
    device_id = bench.device()
    command_id = bench.send(device_id)
    play(bench, device_id)
    until(lambda: status(bench, device_id, command_id), "succeeded")


def test_each_command_has_its_answer_with_the_result_of_choice(bench):
    device_id = bench.device()
    answers = [
        {"command": "open_door", "result": {"opened": True}},
        {"command": "close_door", "status": "failed", "error": "the door is blocked", "result": {"angle": 12}},
    ]
    play(bench, device_id, answers=answers)
    opened, closed, other = (bench.send(device_id, name) for name in ("open_door", "close_door", "wave"))
    until(lambda: status(bench, device_id, other), "rejected")
    assert bench.command(device_id, opened)["result"] == {"opened": True}
    failed = bench.command(device_id, closed)
    assert (failed["status"], failed["status_reason"], failed["result"]) == (
        "failed",
        "the door is blocked",
        {"angle": 12},
    )


def test_an_answer_is_used_as_often_as_it_says_and_the_next_one_after_that(bench):
    device_id = bench.device()
    play(bench, device_id, answers=[{"times": 2, "status": "failed"}, {}])
    sent = [bench.send(device_id) for _ in range(3)]
    until(lambda: [status(bench, device_id, one) for one in sent], ["failed", "failed", "succeeded"])


def test_an_answer_comes_so_many_seconds_of_the_services_clock_after_the_delivery(bench):
    freeze(bench)
    device_id = bench.device()
    play(bench, device_id, answers=[{"after_s": 30}])
    command_id = bench.send(device_id)
    until(lambda: status(bench, device_id, command_id), "delivered")
    advance(bench, 29)
    assert status(bench, device_id, command_id) == "delivered"
    advance(bench, 2)
    record = bench.command(device_id, command_id)
    assert record["status"] == "succeeded"
    assert record["completed_at"][17:19] == "30"  # carried out at its instant, not when the clock stopped


def test_a_device_that_polls_has_a_command_with_its_next_poll(bench):
    freeze(bench)
    device_id = bench.device()
    play(bench, device_id, poll_s=10)
    advance(bench, 1)
    command_id = bench.send(device_id)
    advance(bench, 5)
    assert status(bench, device_id, command_id) == "queued"
    advance(bench, 5)
    assert status(bench, device_id, command_id) == "succeeded"


def test_a_device_that_never_answers_is_given_the_command_and_the_command_times_out(bench):
    freeze(bench)
    device_id = bench.device()
    play(bench, device_id, answers=[{"status": "never"}])
    command_id = bench.send(device_id, ttl_seconds=60)
    until(lambda: status(bench, device_id, command_id), "delivered")
    assert bench.http.get(f"{PATH}/{device_id}").json()["open"] == [command_id]
    advance(bench, 61)
    assert status(bench, device_id, command_id) == "timed_out"
    until(lambda: bench.http.get(f"{PATH}/{device_id}").json()["open"], [])


def test_readings_come_from_signals_at_instants_of_the_services_clock(bench):
    freeze(bench)
    device_id = bench.device()
    play(bench, device_id, readings={"every_s": 10, "signals": SIGNALS})
    until(lambda: bench.http.get(f"{PATH}/{device_id}").json()["readings"], 1)
    advance(bench, 25)
    readings = bench.http.get("/sensor-data", params={"device_id": device_id, "order": "asc"}).json()["data"]
    assert [one["sensor_data"] for one in readings] == [{"temperature": 20.0}] * 3
    assert [one["recorded_at"][17:19] for one in readings] == ["00", "10", "20"]


def test_what_follows_at_the_same_instant_happens_at_it_while_the_clock_is_moved_far(bench):
    """A reading fires a rule, its command is handed out and answered: all of it before the clock goes on."""
    freeze(bench)
    product_id = bench.product()
    device_id = bench.device(product_id)
    rule = {
        "product_id": product_id,
        "name": "Rising",
        "trigger": {"reading": "t", "op": ">", "value": 10},
        "actions": [{"type": "command", "command_payload": {"command": "cool"}}],
    }
    assert bench.http.post("/rules", json=rule).status_code == 201
    signal = {"kind": "diurnal", "mean": 10, "amplitude": 5}
    play(bench, device_id, readings={"every_s": 7200, "signals": {"t": signal}})
    advance(bench, 4 * 86_400)
    readings = bench.http.get("/sensor-data", params={"device_id": device_id, "order": "asc"}).json()["data"]
    pairs = itertools.pairwise([{"sensor_data": {"t": 0}}, *readings])
    high = [two["recorded_at"] for one, two in pairs if one["sensor_data"]["t"] <= 10 < two["sensor_data"]["t"]]
    commands = bench.http.get(f"/devices/{device_id}/commands", params={"order": "asc"}).json()["data"]
    assert len(high) >= 4
    assert [one["created_at"] for one in commands] == high
    assert [one["completed_at"] for one in commands] == high


def test_the_same_seed_and_identifier_read_the_same(bench):
    freeze(bench)
    product_id = bench.product()
    wanted = {"every_s": 60, "signals": {"t": {"kind": "random_walk", "start": 5, "step": 1, "digits": 6}}, "seed": 5}
    seen = []
    for _ in range(2):
        device_id = bench.device(product_id)
        play(bench, device_id, readings=wanted)
        until(lambda device_id=device_id: bench.http.get(f"{PATH}/{device_id}").json()["readings"], 1)
        seen.append(bench.http.get("/sensor-data", params={"device_id": device_id}).json()["data"][0]["sensor_data"])
        assert bench.http.delete(f"/onboarding/device/{device_id}").status_code == 204
    assert seen[0] == seen[1]


def test_a_second_script_replaces_the_first(bench):
    device_id = bench.device()
    play(bench, device_id, answers=[{"status": "never"}])
    play(bench, device_id, status=200, answers=[{"status": "failed"}])
    command_id = bench.send(device_id)
    until(lambda: status(bench, device_id, command_id), "failed")
    assert len(bench.http.get(PATH).json()["data"]) == 1


def test_a_script_that_was_deleted_answers_nothing_any_more(bench):
    device_id = bench.device()
    play(bench, device_id)
    assert bench.http.delete(f"{PATH}/{device_id}").status_code == 204
    assert bench.http.delete(f"{PATH}/{device_id}").status_code == 404
    assert bench.http.get(f"{PATH}/{device_id}").json()["error"] == "scripted_device_not_found"
    other = bench.device(identifier="SN-000002")
    play(bench, other)
    command_id, answered = bench.send(device_id), bench.send(other)
    until(lambda: status(bench, other, answered), "succeeded")
    assert status(bench, device_id, command_id) == "queued"


def test_reset_and_removal_end_scripts(bench):
    kept, removed = bench.device(), bench.device(bench.product(), "SN-000002")
    play(bench, kept)
    play(bench, removed)
    assert bench.http.delete(f"/onboarding/device/{removed}").status_code == 204
    until(lambda: [one["script"]["device_id"] for one in bench.http.get(PATH).json()["data"]], [kept])
    assert bench.http.post("/_emulator/reset").status_code == 204
    assert bench.http.get(PATH).json() == {"data": []}


@pytest.mark.parametrize(
    ("script", "field"),
    [
        ({"answers": [{"after_s": -1}]}, "answers.0.after_s"),
        ({"answers": [{"status": "never", "result": {}}]}, "answers.0"),
        ({"answers": [{"status": "exploded"}]}, "answers.0.status"),
        ({"answers": [{"error": "x"}]}, "answers.0"),
        ({"answers": [{}] * 51}, "answers"),
        ({"poll_s": 0}, "poll_s"),
        ({"reading": {}}, "reading"),
        ({"readings": {"every_s": 1}}, "readings.signals"),
        ({"readings": {"every_s": 0.01, "signals": SIGNALS}}, "readings.every_s"),
        ({"readings": {"every_s": 1, "signals": {"t": {"kind": "sinus"}}}}, "readings.signals.t"),
        ({"readings": {"every_s": 1, "signals": {"t": {"kind": "constant"}}}}, "readings.signals.t.constant.value"),
        (
            {"readings": {"every_s": 1, "signals": {"t": {"kind": "python", "file": "/tmp/own.py"}}}},
            "readings.signals.t",
        ),
        (
            {
                "readings": {
                    "every_s": 1,
                    "signals": {"t": {"kind": "csv", "file": "/etc/passwd", "column": "a", "every_s": 1}},
                }
            },
            "readings.signals.t",
        ),
    ],
)
def test_a_script_that_cannot_be_played_names_the_field_and_changes_nothing(bench, script, field):
    device_id = bench.device()
    play(bench, device_id, answers=[{"status": "failed"}])
    answer = bench.http.post(PATH, json={"device_id": device_id, **script})
    assert answer.status_code == 400, answer.text
    assert field in [one["field"] for one in answer.json()["details"]]
    (kept,) = bench.http.get(PATH).json()["data"]
    assert kept["script"]["answers"][0]["status"] == "failed"


def test_a_device_that_is_not_registered_is_404(bench):
    answer = bench.http.post(PATH, json={"device_id": "nobody"})
    assert (answer.status_code, answer.json()["error"]) == (404, "device_not_found")


def test_there_are_so_many_scripted_devices_at_most(bench, monkeypatch):
    monkeypatch.setattr(scripted, "DEVICES_MAX", 1)
    product_id = bench.product()
    first, second = bench.device(product_id, "SN-1"), bench.device(product_id, "SN-2")
    play(bench, first)
    play(bench, first, status=200)
    answer = bench.http.post(PATH, json={"device_id": second})
    assert (answer.status_code, answer.json()["error"]) == (409, "too_many_scripted_devices")


def test_a_clock_that_is_set_back_does_not_stop_a_device(bench):
    freeze(bench)
    device_id = bench.device()
    play(bench, device_id, readings={"every_s": 10, "signals": SIGNALS})
    advance(bench, 100)
    before = bench.http.get(f"{PATH}/{device_id}").json()["readings"]
    assert (
        bench.http.put("/_emulator/clock", json={"mode": "frozen", "time": "2026-01-01T00:00:00Z"}).status_code == 200
    )
    until(lambda: bench.http.get(f"{PATH}/{device_id}").json()["readings"], before + 1)


def test_a_clock_that_is_set_back_leaves_no_command_unseen_and_no_answer_for_later(bench):
    device_id = bench.device()
    freeze(bench)
    play(bench, device_id, answers=[{"after_s": 60}])
    before = bench.send(device_id, ttl_seconds=172_800)
    until(lambda: bench.http.get(f"{PATH}/{device_id}").json()["delivered"], 1)
    wanted = {"mode": "frozen", "time": "2025-12-31T12:00:00Z"}
    assert bench.http.put("/_emulator/clock", json=wanted).status_code == 200
    after = bench.send(device_id, ttl_seconds=600)
    until(lambda: bench.http.get(f"{PATH}/{device_id}").json()["delivered"], 2)
    advance(bench, 61)
    assert [status(bench, device_id, one) for one in (before, after)] == ["succeeded", "succeeded"]
