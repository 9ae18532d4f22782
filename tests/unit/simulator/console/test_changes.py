"""The stream of what changes: which devices, how much in a second, and nothing while nobody listens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.console_pages import ConsoleBench, running_console

PATH = "/_emulator/events"


@contextmanager
def events(console: ConsoleBench, **query: str) -> Iterator[Iterator[dict[str, Any]]]:
    with console.http.stream("GET", PATH, params=query) as answer:
        assert answer.status_code == 200
        yield (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))


def until(found: Iterator[dict[str, Any]], device_id: str) -> dict[str, Any]:
    return next(event for event in found if device_id in event["device_ids"])


def test_a_reading_and_a_command_name_their_device_and_count_as_rates():
    with running_console() as console:
        one, other = console.device(identifier="S1"), console.device(identifier="S2")
        with events(console) as found:
            first = next(found)
            assert first["registered"] == 2
            console.post_reading(one)
            event = until(found, one)
            assert event["rates"]["readings"] > 0
            console.send(other)
            assert until(found, other)["rates"]["commands"] > 0


def test_a_stream_of_one_device_names_no_other():
    with running_console() as console:
        one, other = console.device(identifier="S1"), console.device(identifier="S2")
        with events(console, device_id=other) as found:
            next(found)
            console.post_reading(one)
            console.post_reading(other)
            seen = until(found, other)
            assert seen["device_ids"] == [other]


def test_the_clock_comes_with_each_event():
    with running_console() as console:
        frozen = console.http.put("/_emulator/clock", json={"mode": "frozen"})
        assert frozen.status_code == 200, frozen.text
        with events(console) as found:
            event = next(found)
            assert event["frozen"]
            assert event["time"].endswith("Z")


def test_streams_end_with_the_service():
    with running_console() as console, events(console) as found:
        next(found)
        console.service.stop()
        assert list(found) is not None
