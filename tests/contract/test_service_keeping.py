"""``keep_readings`` and ``keep_commands``: the newest so many, and never what is open."""

from __future__ import annotations

import json
import logging
import threading
import time

import pytest

from agent.errors import ConfigurationError
from simulator.service import keeping
from simulator.service.config import ServiceConfig
from simulator.service.storage import deleting
from tests.service_running import Bench, client, running


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(keeping, "EVERY_S", 0.0)


def until(look, wanted):
    deadline_s = time.monotonic() + 60
    while (found := look()) != wanted:
        assert time.monotonic() < deadline_s, found
        threading.Event().wait(0.02)


def values(bench, **query):
    found = bench.http.get("/sensor-data", params={"order": "asc", "limit": 1000, **query}).json()["data"]
    return [one["sensor_data"]["t"] for one in found]


def ids(bench, device_id, **query):
    found = bench.http.get(f"/devices/{device_id}/commands", params={"limit": 1000, "order": "asc", **query})
    return [one["id"] for one in found.json()["data"]]


def test_the_newest_readings_by_arrival_are_kept_of_all_devices_together(storage, caplog, monkeypatch):
    monkeypatch.setattr(deleting, "ROWS_AT_ONCE", 4)  # so that a cut takes several transactions
    with caplog.at_level(logging.WARNING), running(keep_readings=10) as bench:
        product_id = bench.product()
        first, second = bench.device(product_id, "SN-1"), bench.device(product_id, "SN-2")
        for number in range(15):
            # Recorded ever earlier: it is the arrival that counts.
            bench.post_reading(first, sensor_data={"t": number}, recorded_at=1_767_225_600_000 - number * 1000)
        for number in range(15, 20):
            bench.post_reading(second, sensor_data={"t": number})
        until(lambda: sorted(values(bench)), list(range(10, 20)))
        assert sorted(values(bench, device_id=first)) == [10, 11, 12, 13, 14]
        bench.post_reading(second, sensor_data={"t": 20})
        until(lambda: sorted(values(bench)), list(range(11, 21)))
    assert [one.message for one in caplog.records if "--keep-readings" in one.message] == [
        "there are more than 10 readings: the oldest are deleted from now on; --keep-readings keeps more"
    ]


def test_ended_commands_beyond_the_bound_are_deleted_and_open_ones_never(storage):
    with running(keep_commands=2) as bench:
        device_id = bench.device()
        oldest_open = bench.send(device_id)
        ended = []
        for _ in range(5):
            ended.append(bench.send(device_id))
            assert bench.report(device_id, ended[-1], "succeeded").status_code == 200
        later_open = [bench.send(device_id) for _ in range(5)]
        until(lambda: ids(bench, device_id), [oldest_open, *ended[3:], *later_open])
        assert ids(bench, device_id, status="open") == [oldest_open, *later_open]
        gone = bench.http.get(f"/devices/{device_id}/commands/{ended[0]}")
        assert (gone.status_code, gone.json()["error"]) == (404, "command_not_found")
        assert bench.report(device_id, oldest_open, "succeeded").status_code == 200


def test_an_event_stream_sends_nothing_again_when_the_command_that_it_sent_last_is_deleted(storage):
    with running(keep_commands=1) as bench:
        device_id = bench.device()
        keys = bench.service.add_account("other")
        with client(bench.service, keys.api_key, keys.secret_key.reveal()) as http:
            other = Bench(bench.service, bench.clock, http)
            others_device = other.device()
            with bench.http.stream("GET", "/commands/events") as stream:
                events = (json.loads(line[6:])["id"] for line in stream.iter_lines() if line.startswith("data: {"))
                still_open, last = bench.send(device_id), bench.send(device_id)
                assert [next(events), next(events)] == [still_open, last]
                assert bench.report(device_id, last, "succeeded").status_code == 200
                newer = other.send(others_device)
                assert other.report(others_device, newer, "succeeded").status_code == 200
                until(lambda: ids(bench, device_id), [still_open])
                after = bench.send(device_id)
                assert next(events) == after


def test_without_a_bound_nothing_is_deleted(storage):
    with running() as bench:
        device_id = bench.device()
        for number in range(30):
            bench.post_reading(device_id, sensor_data={"t": number})
        assert len(values(bench)) == 30
        assert ServiceConfig().keep_readings is None
        assert ServiceConfig().keep_commands is None


@pytest.mark.one_database
def test_a_bound_below_one_is_refused():
    with pytest.raises(ConfigurationError, match="keep_readings must be 1 or more"):
        ServiceConfig(keep_readings=0)
