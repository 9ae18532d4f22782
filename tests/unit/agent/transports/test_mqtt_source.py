"""The first contact over a connection: commands are held until it can be told which of them are history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import Offline
from agent.transports.mqtt_connection import Arrival
from agent.transports.mqtt_source import HOLD_S, FirstPush, MqttSource
from agent.wire import topics
from tests.fakes import START_WALL_S, FakeClock


class FakeConnection:
    def __init__(self) -> None:
        self.is_up = True
        self.trouble = Offline("connecting", "not yet")
        self.acknowledged: list[Any] = []

    def acknowledge(self, arrival: Any) -> None:
        self.acknowledged.append(arrival)


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.connection = FakeConnection()
        self.is_due, self.is_dated = True, False
        first = FirstPush(lambda: self.is_due, lambda: self.is_dated)
        self.source = MqttSource(self.connection, "d1", self.clock, 100_000, first)  # type: ignore[arg-type]

    def push(self, command_id: str, *, mid: int = 1, session: object = None, **members: Any) -> None:
        record = {"id": command_id, "command_payload": {"command": "ping"}, **members}
        topic = topics.command("d1", command_id)
        self.source.arrived(Arrival(topic, json.dumps(record).encode(), 1, False, session, mid))  # type: ignore[arg-type]

    def poll(self) -> list[str] | None:
        """The ids; None while they are held."""
        poll = self.source.poll(0.0)
        return None if poll.unchanged else [command.id for command in poll.commands]


def test_a_command_waits_for_the_time_and_comes_with_it():
    bench = Bench()
    bench.push("c1")
    assert bench.poll() is None
    bench.source.set_time(START_WALL_S)
    assert bench.poll() == ["c1"]


def test_nothing_is_held_where_the_time_is_known():
    bench = Bench()
    bench.is_dated = True
    bench.push("c1")
    assert bench.poll() == ["c1"]


def test_a_connection_with_nothing_pushed_is_a_first_contact_too():
    assert Bench().poll() == []


def test_what_the_service_calls_open_waits_for_nothing():
    bench = Bench()
    bench.push("c1", status="queued")
    assert bench.poll() == ["c1"]


def test_a_gateway_that_never_tells_the_time_is_waited_for_once():
    bench = Bench()
    bench.push("c1")
    assert bench.poll() is None
    bench.clock.advance(HOLD_S)
    assert bench.poll() == ["c1"]
    bench.push("c2")
    assert bench.poll() == ["c1", "c2"]


def test_after_the_first_contact_nothing_is_held():
    bench = Bench()
    bench.is_due = False
    bench.push("c1")
    assert bench.poll() == ["c1"]


def test_of_a_command_that_comes_again_and_again_one_message_is_kept_and_the_others_are_acknowledged():
    bench = Bench()
    bench.is_due = False
    for mid in range(1, 101):
        bench.push("c1", mid=mid)
    assert [each.mid for each in bench.connection.acknowledged] == list(range(1, 100))
    assert bench.poll() == ["c1"]
    bench.push("c1", mid=100)  # the same message once more: it is the one that is kept
    assert len(bench.connection.acknowledged) == 99
    bench.source.acknowledge(["c1"])
    assert [each.mid for each in bench.connection.acknowledged] == list(range(1, 101))


def test_a_message_of_an_earlier_connection_is_not_the_same_for_its_number():
    bench = Bench()
    bench.is_due = False
    first, second = object(), object()
    bench.push("c1", mid=7, session=first)
    bench.push("c1", mid=7, session=second)
    bench.source.acknowledge(["c1"])
    assert [each.session for each in bench.connection.acknowledged] == [first, second]


def test_a_connection_that_goes_meanwhile_is_told():
    bench = Bench()
    bench.connection.is_up = False
    with pytest.raises(Offline):
        bench.poll()
