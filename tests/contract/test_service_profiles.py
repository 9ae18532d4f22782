"""Profiles on every storage: what is kept there, and ids that are looked up there."""

from __future__ import annotations

import json

import pytest

from simulator.service.profiles.model import COMPLETE, PLAIN
from tests.contract.test_service_command_events import listening
from tests.profiles import outside, profile, running_as, switch
from tests.service_running import client


def test_a_number_as_id_takes_a_result() -> None:
    with running_as(profile(id_type="integer", id_name="command_id", status_words="own")) as bench:
        device_id = bench.device()
        command_id = bench.send(device_id)
        path = f"/devices/{device_id}/commands"
        with outside(bench) as http:
            number = http.get(path).json()["data"][0]["command_id"]
            assert isinstance(number, int)
            done = http.post(f"{path}/{number}/result", json={"status": "succeeded"})
            assert done.status_code == 200
            assert (done.json()["status"], done.json()["command_id"]) == ("DONE", number)
            assert http.post(f"{path}/{number + 1}/result", json={"status": "succeeded"}).status_code == 404
        assert bench.command(device_id, command_id)["status"] == "succeeded"


@pytest.mark.parametrize(
    "axes",
    [
        {"id_name": "meta.uuid"},
        {"id_name": "none", "status_words": "own"},
        {"id_name": "command_id", "id_type": "integer", "time_format": "epoch_s"},
    ],
    ids=str,
)
def test_a_command_is_written_in_the_stream_of_events_as_in_the_list(axes: dict[str, str]) -> None:
    with running_as(profile(**axes)) as bench:
        device_id = bench.device()
        with outside(bench) as http, listening(http) as stream:
            command_id = bench.send(device_id)
            event_id, record = stream.next()
            assert event_id == command_id
            assert record == http.get(f"/devices/{device_id}/commands").json()["data"][0]


@pytest.mark.parametrize("axes", [{}, {"command_list": "open"}], ids=str)
def test_a_link_to_the_next_page_has_nothing_that_the_server_refuses(axes: dict[str, str]) -> None:
    other = {"paging": "complete", "page_size": 1, "list_shape": "bare"}
    with running_as(profile("plain", **other, **axes)) as bench:
        device_id = bench.device()
        sent = {bench.send(device_id) for _ in range(3)}
        with outside(bench) as http:
            answer = http.get(f"/devices/{device_id}/commands")
            listed = [one["id"] for one in answer.json()]
            while "next" in answer.links:
                answer = http.get(answer.links["next"]["url"])
                assert answer.status_code == 200, answer.text
                listed += [one["id"] for one in answer.json()]
        assert (set(listed), len(listed)) == (sent, 3)


def test_a_command_is_handed_out_once() -> None:
    with running_as(profile("plain", command_list="once")) as bench:
        device_id = bench.device()
        command_id = bench.send(device_id)
        with outside(bench) as http:
            assert [one["id"] for one in http.get(f"/devices/{device_id}/commands").json()["data"]] == [command_id]
            assert http.get(f"/devices/{device_id}/commands").json()["data"] == []
        assert bench.command(device_id, command_id)["status"] == "delivered"


def test_accounts_are_apart() -> None:
    with running_as(COMPLETE) as bench:
        other = bench.service.add_account("other")
        switch(bench, PLAIN, other.api_key)
        with outside(bench) as mine, client(bench.service, other.api_key, other.secret_key.reveal()) as theirs:
            assert mine.get("/.well-known/device-service").status_code == 200
            assert theirs.get("/.well-known/device-service").status_code == 404
            assert theirs.get("/products", params={"colour": "red"}).status_code == 200
            assert mine.get("/products", params={"colour": "red"}).status_code == 400
        path = f"/_emulator/accounts/{other.api_key}/profile"
        assert bench.http.get(path).json() == json.loads(PLAIN.model_dump_json())
        assert bench.http.get("/_emulator/accounts/nobody/profile").status_code == 404
        bench.http.post("/_emulator/reset")
        assert bench.http.get(path).json() == json.loads(PLAIN.model_dump_json()), "a reset keeps accounts as they are"
