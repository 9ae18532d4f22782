"""The agent's core in a device and the service of the tests, joined output to input on virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.timekeeping import PollIntervals
from agent.core.values import CommandState, Contract
from agent.health import Backoff
from agent.wire.encoding import parse_time
from agent.wire.server import ALL_EXTENSIONS, LONG_POLL
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.handlers import VOCABULARY
from simulator.fleet.device.model import DeviceModel, Member
from simulator.fleet.engine.addresses import RequestHead, read_origin
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.runner import DeviceLedger, MemoryLedger
from tests.support.reading_audit import find_wrong
from tests.support.virtual_clock import VirtualClock
from tests.support.virtual_fleet.service import FINAL, Sent, Service
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, Answer, FakeEngine, Request, a_fleet

OFFERS = ALL_EXTENSIONS - {LONG_POLL}


def is_bad(reading: dict) -> bool:
    return round(reading["sensor_data"]["temperature_celsius"] * 100) % 4 == 0


def picky(sent: Sent) -> tuple[int, dict] | None:
    """It refuses a quarter of the readings for good, and every batch with one of them."""
    readings = sent.readings if sent.target == "/sensor-data" else []
    return (400, {"error": "validation_error"}) if any(map(is_bad, readings)) else None


class World:
    """One device, one service, one clock; ``trouble`` decides about each request."""

    def __init__(self, trouble: Callable[[], str]) -> None:
        self.trouble = trouble
        self.clock = VirtualClock(1000.0)
        self.service = Service(SimpleNamespace(time=lambda: START_S + self.clock.time()), OFFERS, picky)
        self.ledger = DeviceLedger("d1", "device")
        ledger = MemoryLedger([self.ledger])
        fleet = a_fleet(self.clock, offers=OFFERS, ledger=ledger, observer=ledger)
        model = DeviceModel(
            interval_s=5.0, polling=PollIntervals(1.0, 2.0, 4.0), backoff=Backoff(base_s=0.5, cap_s=4.0), batch=4
        )
        head = RequestHead(read_origin("http://service"), {})
        self.driver = HttpDriver(FakeEngine(self.clock, self._answer), fleet, [Member("d1", "p1", model)], [head])
        self.disk = self.driver.devices[0].disk
        self.judged: object = None
        self.power(on=True)

    def _answer(self, request: Request) -> Answer:
        trouble = self.trouble()
        if trouble == "request lost":
            return OutcomeClass.TRANSPORT
        if trouble in {"500", "429"}:
            return int(trouble), {"retry-after": "1"}, b"{}"
        answers: list[Answer] = []
        headers = {"date": self.service.date(), "content-type": "application/json"}
        self.service.take(request, lambda status, value: answers.append((status, headers, json.dumps(value).encode())))
        if trouble == "answer lost":
            return OutcomeClass.TRANSPORT
        return (200, {"content-type": "text/html"}, b"<html>sign in</html>") if trouble == "portal" else answers[0]

    def send(self, payload: dict, ttl_s: float = 3600.0) -> dict:
        """The record of a new command."""
        order = {"device_id": "d1", "command_payload": payload, "ttl_seconds": ttl_s}
        body = json.dumps(order).encode()
        self.service.take(Request(0, "POST", "/commands/send", {}, body, 0.0, 0.0), lambda *_answer: None)
        return list(self.service.commands.values())[-1]

    def stored(self) -> list[tuple[int, dict[str, float]]]:
        stored = self.service.stored
        return [(round(parse_time(each["recorded_at"]) * 1000), each["sensor_data"]) for each in stored]

    def power(self, *, on: bool) -> None:
        (self.driver.switch_on if on else self.driver.switch_off)(0)

    def run(self, seconds: float) -> None:
        until_s = self.clock.time() + seconds
        while self.clock.time() < until_s:
            self.clock.run_until(min(until_s, self.clock.time() + 0.25))
            self.check()

    def drain(self, seconds: float) -> None:
        self.driver.drain()
        self.run(seconds)

    def check(self) -> None:
        """What holds after every step, whatever happened."""
        runs, entries = self.ledger.effects, self.disk.journal.entries
        for command_id, command in self.service.commands.items():
            handler = VOCABULARY.get(str(command["command_payload"].get("command")))
            if handler is None or command["status"] == "expired":
                assert runs[command_id] == 0
            elif handler.contract is Contract.ONCE:
                assert runs[command_id] <= 1
            entry = entries.get(command_id)
            if entry is not None and entry.state is CommandState.REPORTED:
                assert command["status"] == str(entry.outcome.status)
        # All that the audit goes by; what it has found clean once is not judged again until something of it changes.
        ledger = self.ledger
        seen = (len(self.service.stored), len(ledger.facts), ledger.accepted, len(ledger.refused_numbers))
        if seen != self.judged:
            assert find_wrong(ledger, self.stored()) == {}
            self.judged = seen


PAYLOADS = [
    {"command": "ping", "echo": 1},
    {"command": "open_valve", "seconds": 3},
    {"command": "self_test", "seconds": 3},
    {"command": "make_coffee"},
    {"command": "set_interval", "name": "climate", "interval_s": "soon"},
    {"command": "set_interval", "name": "climate", "interval_s": 2},
    {"no": "name"},
]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, len(PAYLOADS) - 1)),
        st.tuples(st.just("send soon over"), st.integers(0, len(PAYLOADS) - 1)),
        st.tuples(st.just("run"), st.floats(0.1, 6)),
        st.tuples(st.just("off"), st.just(0)),
        st.tuples(st.just("on"), st.just(0)),
    ),
    max_size=25,
)
TROUBLE = st.sampled_from(["none", "none", "none", "request lost", "answer lost", "500", "429", "portal"])


@settings(max_examples=50)
@given(STEPS, st.lists(TROUBLE, max_size=60))
def test_whatever_fails_every_command_ends_and_every_reading_is_stored_once_or_refused(steps, troubles):
    waiting = iter(troubles)
    world = World(lambda: next(waiting, "none"))
    for step, number in steps:
        if step == "send":
            world.send(PAYLOADS[number])
        elif step == "send soon over":
            world.send(PAYLOADS[number], ttl_s=1.0)
        elif step == "run":
            world.run(number)
        else:
            world.power(on=step == "on")
    world.trouble = lambda: "none"
    world.power(on=True)
    world.run(200)
    world.drain(20)
    assert {command["status"] for command in world.service.commands.values()} <= FINAL
    assert world.driver.has_settled()
    refused = len(world.ledger.refused_numbers)
    assert world.ledger.accepted == len(world.service.stored) == world.ledger.sent - refused > refused > 0
    never = [c for c in world.service.commands.values() if c["command_payload"] in PAYLOADS[3:5] + PAYLOADS[6:]]
    assert {command["status"] for command in never} <= {"rejected", "expired"}


@pytest.mark.parametrize(("status", "undeliverable"), [("cancelled", 1), ("succeeded", 0)])
def test_a_result_whose_command_is_over_was_taken_only_if_it_was_sent_before(status, undeliverable):
    """The second one arrived, and the power went before its answer came."""
    world = World(lambda: "none")
    test = world.send(PAYLOADS[2])
    world.run(2.5)
    if status == "cancelled":
        test["status"] = status
    else:
        world.trouble = lambda: "answer lost"
        world.run(2)
        world.power(on=False)
        world.trouble = lambda: "none"
        world.power(on=True)
    world.run(20)
    fleet = world.driver.fleet
    assert (test["status"], fleet.open_commands, fleet.undeliverable_results) == (status, 0, undeliverable)


def test_a_once_handler_that_the_power_left_is_not_run_again_and_an_idempotent_one_is():
    world = World(lambda: "none")
    valve, test = world.send(PAYLOADS[1]), world.send(PAYLOADS[2])
    world.run(2.5)
    assert valve["status"] == "in_progress"
    world.power(on=False)
    world.run(2)
    world.power(on=True)
    world.run(20)
    assert valve["status"] == "failed"
    assert valve["error"].startswith("indeterminate")
    assert test["status"] == "succeeded"
    assert world.ledger.effects == {valve["id"]: 1, test["id"]: 2}
