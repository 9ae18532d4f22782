"""The table of devices: windows of one order, searched, filtered and sorted by the service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.console.device_table import Windows
from tests.console_pages import ConsoleBench, running_console

PATH = "/_emulator/device-table"


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleBench]:
    with running_console() as bench:
        climate, door = bench.product(name="Climate sensor"), bench.product(name="Door controller")
        for number in range(1, 8):
            bench.device(climate if number % 2 else door, f"SN-{number:03d}")
        yield bench


def table(console: ConsoleBench, **query: Any) -> dict[str, Any]:
    answer = console.http.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def identifiers(found: dict[str, Any]) -> list[str]:
    return [row["device_identifier"] for row in found["data"]]


def test_a_window_has_the_rows_at_its_place_and_the_total(console):
    found = table(console, offset=2, limit=3)
    assert (found["total"], found["offset"]) == (7, 2)
    assert identifiers(found) == ["SN-003", "SN-004", "SN-005"]


def test_a_window_beyond_the_end_is_empty(console):
    assert table(console, offset=100) == {"total": 7, "offset": 100, "data": []}


@pytest.mark.parametrize(
    ("text", "total"),
    [("sn-00", 7), ("SN-003", 1), ("door", 3), ("climate", 4), ("%", 0), ("_", 0), ("nothing", 0), ("  sn-001 ", 1)],
)
def test_the_search_looks_into_identifiers_and_product_names(console, text, total):
    assert table(console, q=text)["total"] == total


@pytest.mark.parametrize(
    "sort", ["registered", "device_name", "device_identifier", "product_name", "last_seen_at", "last_reading_at"]
)
def test_every_order_can_be_turned_round(console, sort):
    forward = identifiers(table(console, sort=sort))
    assert identifiers(table(console, sort=sort, order="desc"))[0] == forward[-1]
    assert sorted(forward) == sorted(identifiers(table(console)))


def test_a_row_says_what_was_read_last_and_what_is_open():
    with running_console() as bench:
        device_id = bench.device()
        bench.post_reading(device_id, sensor_data={"t": 1})
        bench.post_reading(device_id, sensor_data={"t": 2, "a": 1, "b": 2, "c": 3, "d": 4})
        bench.send(device_id)
        row = table(bench)["data"][0]
        assert row["last_reading"] == {"t": 2, "a": 1, "b": 2, "c": 3}
        assert (row["open_commands"], row["status"]) == (1, "online")
        assert table(bench, status="online")["total"] == 1
        assert table(bench, status="never_seen")["total"] == 0


def test_a_long_name_is_cut():
    with running_console() as bench:
        body = {"user_id": "u", "product_id": bench.product(), "device_identifier": "S", "device_name": "x" * 10_000}
        assert bench.http.post("/onboarding/device", json=body).status_code == 201
        assert table(bench)["data"][0]["device_name"] == "x" * 199 + "…"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"sort": "colour"}, "sort"),
        ({"order": "up"}, "order"),
        ({"status": "asleep"}, "status"),
        ({"q": "x" * 201}, "q"),
        ({"offset": -1}, "offset"),
        ({"limit": 0}, "limit"),
        ({"limit": 201}, "limit"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(console, query, field):
    answer = console.http.get(PATH, params=query)
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, field)


def test_another_account_sees_its_own_devices(console):
    keys = console.service.add_account("other")
    assert table(console, api_key=keys.api_key)["total"] == 0
    assert console.http.get(PATH, params={"api_key": "mk_nobody"}).status_code == 404


# --- windows that several pages look at ---------------------------------------------------------------------------


class Turns:
    """What is known of changes: in which turn they are, and whether anybody follows them."""

    turn, is_followed = 0, True


def find_in_turns(turns: list[tuple[int, bool, float]]) -> list[int]:
    """What a window answers in each turn (turn, followed, seconds): the number of the reading that it came of."""
    changes, reads = Turns(), 0
    times = [0.0]

    async def read() -> int:
        nonlocal reads
        reads += 1
        return reads

    async def play() -> list[int]:
        windows = Windows(changes, lambda: times[0])
        found = []
        for changes.turn, changes.is_followed, times[0] in turns:
            found.append(await windows.find("a window", read))
        return found

    return asyncio.run(play())


def test_a_window_is_read_once_in_a_turn_and_anew_in_the_next():
    assert find_in_turns([(0, True, 0.0), (0, True, 0.5), (1, True, 1.0), (1, True, 1.1)]) == [1, 1, 2, 2]


def test_where_nobody_follows_the_changes_every_window_is_read():
    assert find_in_turns([(0, False, 0.0), (0, False, 0.1)]) == [1, 2]


def test_a_window_is_read_anew_where_looking_for_changes_has_stopped():
    assert find_in_turns([(0, True, 0.0), (0, True, 2.5)]) == [1, 2]
