"""Agent core and a model of the service, joined output-to-input on virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs, urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.timekeeping import PollIntervals
from agent.core.values import CommandState, Contract
from agent.health import Backoff
from agent.wire.encoding import parse_time, to_rfc3339
from agent.wire.server import ALL_EXTENSIONS, COMMAND_STATUS, LONG_POLL, RECORDED_AT
from simulator.fleet.device.disk import Disk
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.handlers import VOCABULARY
from simulator.fleet.device.model import DeviceModel, Fleet, Member
from simulator.fleet.engine.addresses import RequestHead, read_origin
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.runner import DeviceLedger, MemoryLedger
from tests.support.reading_audit import ReadingFact, audit_readings
from tests.support.virtual_clock import VirtualClock
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, Answer, FakeEngine, Request

FINAL = {"succeeded", "failed", "rejected", "expired"}


@dataclass
class ServiceModel:
    """The device's side of the service: what docs/protocol.md says about polls, results and readings."""

    offers: frozenset[str]
    commands: dict[str, dict] = field(default_factory=dict)
    readings: list[ReadingFact] = field(default_factory=list)
    replays: dict[str, tuple[bytes, Answer]] = field(default_factory=dict)

    def send(self, payload: dict, now_s: float, ttl_s: float = 3600.0) -> str:
        command_id = f"c{len(self.commands) + 1}"
        times = {"created_at": to_rfc3339(now_s), "expires_at": to_rfc3339(now_s + ttl_s)}
        self.commands[command_id] = {"id": command_id, "command_payload": payload, "status": "queued", **times}
        return command_id

    def answer(self, request: Request, now_s: float) -> Answer:
        key = request.headers.get("idempotency-key")
        if key in self.replays:
            assert self.replays[key][0] == request.body, "the same idempotency key with another body"
            return self.replays[key][1]
        status, value = self.handle(request, now_s)
        headers = {"date": formatdate(now_s, usegmt=True), "content-type": "application/json"}
        answer = (status, headers, json.dumps(value).encode())
        if key is not None:
            self.replays[key] = (request.body, answer)
        return answer

    def handle(self, request: Request, now_s: float) -> tuple[int, object]:
        if request.method == "GET":
            return 200, {"data": self._open(request, now_s), "next_cursor": None, "has_more": False}
        if (result := result_of(request)) is not None:
            return self._result(*result)
        body = request.json()
        batch = body if isinstance(body, list) else [body]
        for reading in batch:
            assert ("recorded_at" in reading) == (RECORDED_AT in self.offers)
            at_ms = milliseconds(reading["recorded_at"]) if "recorded_at" in reading else len(self.readings) + 1
            self.readings.append(ReadingFact(at_ms, reading["sensor_data"]))
        return (200, {"accepted": len(batch), "errors": []}) if isinstance(body, list) else (201, batch[0])

    def _open(self, request: Request, now_s: float) -> list[dict]:
        told = parse_qs(urlsplit(request.target).query)
        assert told == ({"status": ["open"]} if COMMAND_STATUS in self.offers else {})
        for command in self.commands.values():
            if command["status"] == "queued":
                expired = milliseconds(command["expires_at"]) <= now_s * 1000
                command["status"] = "expired" if expired else "delivered"
        return [dict(command) for command in self.commands.values() if command["status"] not in FINAL]

    def _result(self, command_id: str, body: dict) -> tuple[int, object]:
        command = self.commands[command_id]
        if command["status"] in FINAL:
            return 409, {"error": "command_finished"}
        command.update(status=body["status"], error=body.get("error"), result=body.get("result"))
        return 200, command


def result_of(request: Request) -> tuple[str, dict] | None:
    """Command and body of a request that reports one: to the endpoint, or as a row of the table of results."""
    parts = request.target.split("/")
    if parts[-1] == "result":
        return parts[-2], request.json()
    if parts[-1] == "runtime-data":
        payload = request.json()["data_payload"]
        return payload["command_id"], payload
    return None


def milliseconds(text: str) -> int:
    return round(parse_time(text) * 1000)


class World:
    """One device, one service, one clock; ``trouble`` decides about each request."""

    def __init__(self, trouble: Callable[[], str], offers: frozenset[str] = ALL_EXTENSIONS - {LONG_POLL}):
        self.trouble = trouble
        self.clock = VirtualClock(1000.0)
        self.service = ServiceModel(offers)
        self.ledger = DeviceLedger("d1", "device")
        self.engine = FakeEngine(self.clock, self._answer)
        ledger = MemoryLedger([self.ledger])
        self.fleet = Fleet(
            wheel=Wheel(self.clock),
            offers=offers,
            seed=1,
            run="run",
            ledger=ledger,
            observer=ledger,
            monotonic=self.clock.time,
            wall=lambda: START_S + self.clock.time(),
        )
        model = DeviceModel(
            interval_s=5.0, polling=PollIntervals(1.0, 2.0, 4.0), backoff=Backoff(base_s=0.5, cap_s=4.0), batch=4
        )
        head = RequestHead(read_origin("http://service"), {})
        self.driver = HttpDriver(self.engine, self.fleet, [Member("d1", "p1", model)], [head])
        self.device = self.driver.devices[0]
        self.judged: object = None
        self.driver.switch_on(0)

    def _answer(self, request: Request) -> Answer:
        trouble = self.trouble()
        if trouble == "request lost":
            return OutcomeClass.TRANSPORT
        if trouble in {"500", "429"}:
            return int(trouble), {"retry-after": "1"}, b"{}"
        answer = self.service.answer(request, self.now_s)
        if trouble == "answer lost":
            return OutcomeClass.TRANSPORT
        return (200, {"content-type": "text/html"}, b"<html>sign in</html>") if trouble == "portal" else answer

    @property
    def now_s(self) -> float:
        return START_S + self.clock.time()

    @property
    def disk(self) -> Disk:
        return self.device.disk

    @property
    def results(self) -> tuple[int, int]:
        """How many commands are open, and how many results nothing takes."""
        return self.fleet.open_commands, self.fleet.undeliverable_results

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
        runs = self.ledger.effects
        entries = self.disk.journal.known(self.service.commands)
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
        seen = (len(self.service.readings), len(ledger.facts), ledger.accepted, len(ledger.refused_numbers))
        if seen != self.judged:
            found = audit_readings(ledger, tuple(self.service.readings))
            assert found.clean, found.wrong
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
def test_whatever_fails_every_command_ends_and_every_reading_is_stored_once(steps, troubles):
    waiting = iter(troubles)
    world = World(lambda: next(waiting, "none"))
    for step, number in steps:
        if step == "send":
            world.service.send(PAYLOADS[number], world.now_s)
        elif step == "send soon over":
            world.service.send(PAYLOADS[number], world.now_s, ttl_s=1.0)
        elif step == "run":
            world.run(number)
        else:
            world.power(on=step == "on")
    world.trouble = lambda: "none"
    world.power(on=True)
    world.run(200)
    world.drain(20)
    assert [command for command in world.service.commands.values() if command["status"] not in FINAL] == []
    assert world.driver.has_settled()
    assert world.ledger.accepted == len(world.service.readings) > 0
    never = [c for c in world.service.commands.values() if c["command_payload"] in PAYLOADS[3:5] + PAYLOADS[6:]]
    assert {command["status"] for command in never} <= {"rejected", "expired"}


def test_a_once_handler_that_the_power_left_is_not_run_again_and_an_idempotent_one_is():
    world = World(lambda: "none")
    valve = world.service.send(PAYLOADS[1], world.now_s)
    test = world.service.send(PAYLOADS[2], world.now_s)
    world.run(2.5)
    assert world.service.commands[valve]["status"] == "in_progress"
    world.power(on=False)
    world.run(2)
    world.power(on=True)
    world.run(20)
    assert world.service.commands[valve]["status"] == "failed"
    assert world.service.commands[valve]["error"].startswith("indeterminate")
    assert world.service.commands[test]["status"] == "succeeded"
    assert world.ledger.effects == {valve: 1, test: 2}


def test_a_reading_that_the_service_refuses_is_set_aside_and_the_others_go_on():
    poison: list[dict[str, float]] = []

    class Picky(ServiceModel):
        def handle(self, request, now_s):
            body = request.json() if request.target == "/sensor-data" else []
            bad = any(reading["sensor_data"] in poison for reading in (body if isinstance(body, list) else [body]))
            return (400, {"error": "validation_error"}) if bad else super().handle(request, now_s)

    world = World(lambda: "500")
    world.service = Picky(world.service.offers)
    world.run(25)
    waiting = world.disk.outbox.next_batch(10, world.device.now())
    assert len(waiting) >= 3
    poison.append(json.loads(waiting[1].text))
    world.trouble = lambda: "none"
    world.run(60)
    world.drain(20)
    assert (len(world.ledger.refused_numbers), len(world.disk.outbox.rows)) == (1, 0)
    assert audit_readings(world.ledger, tuple(world.service.readings)).clean
    assert world.ledger.accepted >= 10
