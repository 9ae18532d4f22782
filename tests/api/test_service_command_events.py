"""``GET /commands/events``: commands as they are sent, as server-sent events."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from simulator.service.api import commands
from simulator.service.changes import STREAMS_MAX
from tests.support.service_running import client, running


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


@dataclass
class Stream:
    """An open stream, read event by event."""

    lines: Iterator[str]
    headers: object

    def next(self) -> tuple[str, dict]:
        """Id and record of the next event."""
        members = {}
        for line in self.lines:
            name, _, value = line.partition(": ")
            if line == "" and "data" in members:
                assert members["event"] == "command"
                return members["id"], json.loads(members["data"])
            if line and name:
                members[name] = value
        raise EOFError

    def comment(self) -> str:
        """The next comment."""
        return next(line for line in self.lines if line.startswith(":"))


@contextlib.contextmanager
def listening(http, last_id: str | None = None):
    headers = {} if last_id is None else {"last-event-id": last_id}
    with http.stream("GET", "/commands/events", headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
        assert answer.status_code == 200, answer.text
        yield Stream(answer.iter_lines(), answer.headers)


def test_commands_of_all_devices_arrive_in_the_order_of_sending(bench):
    product_id = bench.product()
    first, second = bench.device(product_id, "1"), bench.device(product_id, "2")
    bench.send(first, "before")
    with listening(bench.http) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-request-id"]
        head = bench.http.head("/commands/events")
        assert (head.status_code, head.headers["content-type"]) == (200, stream.headers["content-type"])
        sent = [bench.send(device_id) for device_id in (second, first, second)]
        got = [stream.next() for _ in sent]
    assert [event_id for event_id, _ in got] == sent
    assert [record["device_id"] for _, record in got] == [second, first, second]
    assert got[0][1] == bench.command(second, sent[0])


def test_a_stream_goes_on_after_the_last_event_that_was_taken(bench):
    device_id = bench.device()
    with listening(bench.http) as stream:
        taken = bench.send(device_id)
        assert stream.next()[0] == taken
    missed = [bench.send(device_id) for _ in range(70)]  # more than one page
    with listening(bench.http, taken) as stream:
        assert [stream.next()[0] for _ in missed] == missed
        assert bench.send(device_id) == stream.next()[0]


def test_a_command_that_a_rule_sends_is_an_event_too_by_a_reading_and_by_time(bench):
    product_id = bench.product()
    device_id = bench.device(product_id)
    action = {"type": "command", "command_payload": {"command": "open_door"}}
    for seconds in (0, 30):
        trigger = {"reading": "t", "op": ">", "value": 60, "for_seconds": seconds}
        body = {"product_id": product_id, "name": "hot", "trigger": trigger, "actions": [action]}
        assert bench.http.post("/rules", json=body).status_code == 201
    with listening(bench.http) as stream:
        bench.post_reading(device_id, sensor_data={"t": 61})
        assert stream.next()[1]["command_payload"] == {"command": "open_door"}
        bench.clock.advance(30)
        assert stream.next()[1]["created_at"] == "2026-01-01T00:00:30.000Z"


def test_each_manufacturer_hears_its_own_commands_only(bench):
    device_id = bench.device()
    other = bench.add_account("other")
    with client(bench.service, other.api_key, other.secret_key) as http:
        theirs = bench.of(http).device()
        with listening(http) as stream:
            mine = bench.send(device_id)
            http.post("/commands/send", json={"device_id": theirs, "command_payload": {"command": "theirs"}})
            assert stream.next()[1]["command_payload"] == {"command": "theirs"}
        answer = http.get("/commands/events", headers={"last-event-id": mine})
        assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


def test_a_silent_stream_sends_comments_and_ends_after_its_time(bench, monkeypatch):
    monkeypatch.setattr(commands, "HEARTBEAT_S", 0.05)
    with listening(bench.http) as stream:
        assert stream.comment() == ": commands as they are sent"
        assert [stream.comment() for _ in range(3)] == [": still here"] * 3
    monkeypatch.setattr(commands, "STREAM_S", 0.2)
    with listening(bench.http) as stream:
        assert stream.comment() == ": commands as they are sent"
        assert {line for line in stream.lines if line} <= {"retry: 1000", ": still here"}  # and that is the end


def test_an_open_stream_goes_on_over_a_reset(bench):
    device_id = bench.device()
    with listening(bench.http) as stream:
        for _ in range(3):
            bench.send(device_id)
            stream.next()
        bench.http.post("/_emulator/reset")
        again = bench.device()
        sent = bench.send(again)
        assert stream.next()[0] == sent


def test_the_end_of_the_service_ends_the_streams_soon():
    with running() as bench, contextlib.ExitStack() as stack:
        streams = [stack.enter_context(listening(stack.enter_context(client(bench.service)))) for _ in range(3)]
        for stream in streams:
            stream.comment()
        began = time.monotonic()
        bench.service.stop()
        assert [list(stream.lines)[-1:] for stream in streams] == [[""]] * 3
        assert time.monotonic() - began < commands.HEARTBEAT_S  # the next moment at which it would have looked


def test_an_account_has_a_bounded_number_of_streams_and_a_place_is_free_when_one_ends(bench):
    other = bench.add_account("other")
    for _ in range(STREAMS_MAX + 1):  # a stream that is refused takes no place
        assert bench.http.get("/commands/events", headers={"last-event-id": "nothing"}).status_code == 400
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(bench.service)) for _ in range(STREAMS_MAX)]
        endings = [stack.enter_context(contextlib.ExitStack()) for _ in clients]
        streams = [ending.enter_context(listening(http)) for http, ending in zip(clients, endings, strict=True)]
        assert all(stream.comment() for stream in streams)
        for _ in range(3):  # a refusal takes no place
            answer = bench.http.get("/commands/events")
            assert (answer.status_code, answer.json()["error"]) == (429, "too_many_streams")
            assert answer.headers["retry-after"] == "30"
        assert bench.http.head("/commands/events").status_code == 200
        with client(bench.service, other.api_key, other.secret_key) as theirs, listening(theirs) as stream:
            assert stream.comment()
        endings[0].close()
        with again(bench) as stream:  # a place is free once the service has seen that the caller has gone
            assert stream.comment()


@contextlib.contextmanager
def again(bench):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(AssertionError), listening(bench.http) as stream:
            yield stream
            return
    pytest.fail("no place became free")
