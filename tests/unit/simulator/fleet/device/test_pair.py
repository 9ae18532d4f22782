"""Agent core and a model of the service, joined output-to-input on virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.backoff import Backoff
from agent.core.poll_interval import PollIntervals
from agent.core.unreported import LIMITS, ReportFault
from agent.core.values import CommandState, Contract, Moment
from agent.errors import TransportError
from agent.wire import extensions
from agent.wire.times import to_rfc3339
from simulator.fleet.device.device import CommandPolling, VirtualDevice
from simulator.fleet.device.fast_path import KnownAnswers
from simulator.fleet.device.handlers import VOCABULARY
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_codec import HttpCodec, Operation, Request
from simulator.fleet.device.memory_ledger import DeviceLedger, MemoryLedger
from simulator.fleet.device.model import DeviceModel, SharedSettings
from simulator.fleet.device.store import Disk
from simulator.fleet.device.uplink import DeviceUplink
from simulator.fleet.engine.ports import HttpAnswer
from tests.reading_audit import ReadingFact, audit_readings

START_S = 1_767_225_600.0
FINAL = {"succeeded", "failed", "rejected", "expired"}


def answer_of(status: int, headers: dict[str, str], body: bytes) -> HttpAnswer:
    """An answer as an engine hands it over."""
    return HttpAnswer(status, [(name.encode(), value.encode()) for name, value in headers.items()], body)


@dataclass
class ServiceModel:
    """The device's side of the service: what docs/protocol.md says about polls, results and readings."""

    offers: frozenset[str]
    commands: dict[str, dict] = field(default_factory=dict)
    readings: list[ReadingFact] = field(default_factory=list)
    replays: dict[str, tuple[bytes, HttpAnswer]] = field(default_factory=dict)

    def send(self, payload: dict, now_s: float, ttl_s: float = 3600.0) -> str:
        command_id = f"c{len(self.commands) + 1}"
        times = {"created_at": to_rfc3339(now_s), "expires_at": to_rfc3339(now_s + ttl_s)}
        self.commands[command_id] = {"id": command_id, "command_payload": payload, "status": "queued", **times}
        return command_id

    def answer(self, request: Request, now_s: float) -> HttpAnswer:
        key = request.headers.get("idempotency-key")
        if key in self.replays:
            assert self.replays[key][0] == request.body, "the same idempotency key with another body"
            return self.replays[key][1]
        status, value = self._handle(request, now_s)
        answer = answer_of(
            status, {"date": formatdate(now_s, usegmt=True), "content-type": "application/json"}, encode(value)
        )
        if key is not None:
            self.replays[key] = (request.body, answer)
        return answer

    def _handle(self, request: Request, now_s: float) -> tuple[int, object]:
        if request.operation is Operation.POLL:
            return 200, {"data": self._open(request, now_s), "next_cursor": None, "has_more": False}
        body = json.loads(request.body)
        if request.operation is Operation.REPORT:
            return self._result(request, body)
        batch = body if isinstance(body, list) else [body]
        for reading in batch:
            assert ("recorded_at" in reading) == (extensions.RECORDED_AT in self.offers)
            at_ms = milliseconds(reading["recorded_at"]) if "recorded_at" in reading else len(self.readings) + 1
            self.readings.append(ReadingFact(at_ms, reading["sensor_data"]))
        return (200, {"accepted": len(batch), "errors": []}) if isinstance(body, list) else (201, batch[0])

    def _open(self, request: Request, now_s: float) -> list[dict]:
        told = parse_qs(urlsplit(request.target).query)
        assert told == ({"status": ["open"]} if extensions.COMMAND_STATUS in self.offers else {})
        for command in self.commands.values():
            if command["status"] == "queued":
                expired = milliseconds(command["expires_at"]) <= now_s * 1000
                command["status"] = "expired" if expired else "delivered"
        return [dict(command) for command in self.commands.values() if command["status"] not in FINAL]

    def _result(self, request: Request, body: dict) -> tuple[int, object]:
        command = self.commands[request.report.command_id]
        if command["status"] in FINAL:
            return 409, {"error": "command_finished"}
        command.update(status=body["status"], error=body.get("error"), result=body.get("result"))
        return 200, command


def encode(value: object) -> bytes:
    return json.dumps(value).encode()


def milliseconds(text: str) -> int:
    from agent.wire.times import parse_time

    return round(parse_time(text) * 1000)


@dataclass
class World:
    """One device, one service, one clock; ``trouble`` decides about each request."""

    trouble: Callable[[], str]
    offers: frozenset[str] = extensions.ALL - {extensions.LONG_POLL}
    now_s: float = 1000.0
    on: bool = True
    requests: int = 0
    judged: object = None

    def __post_init__(self) -> None:
        self.service = ServiceModel(self.offers)
        self.ledger = DeviceLedger("d1", "device")
        ledger = MemoryLedger([self.ledger])
        self.fleet = SharedSettings(self.offers, seed=1, run="run", ledger=ledger)
        self.known_answers = KnownAnswers()
        self.disk = Disk.empty()
        self.device = self._boot()

    def _boot(self) -> VirtualDevice:
        model = DeviceModel(
            interval_s=5.0, polling=PollIntervals(1.0, 2.0, 4.0), backoff=Backoff(base_s=0.5, cap_s=4.0), batch=4
        )
        codec = HttpCodec("d1", "p1", self.offers)
        parts = {"chance": HashedRandom(1, 0), "known_answers": self.known_answers, "now": self.moment()}
        return VirtualDevice(0, codec, model, self.fleet, self.disk, **parts)

    def moment(self) -> Moment:
        return Moment(self.now_s, START_S + self.now_s, "boot")

    def power(self, *, on: bool) -> None:
        if on and not self.on:
            self.device = self._boot()
        self.on = on

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            if self.on:
                for channel in (self.device.commands, self.device.uplink):
                    self._turn(channel)
            due_s = min(self.device.commands.due_s, self.device.uplink.due_s) if self.on else until_s
            self.now_s = min(until_s, max(due_s, self.now_s + 0.05))
            self.check()

    def _turn(self, channel: CommandPolling | DeviceUplink) -> None:
        sent_s = self.now_s
        self.device.advance(self.moment())
        request = channel.next_request(self.moment())
        if request is None:
            return
        self.requests += 1
        trouble = self.trouble()
        if trouble == "request lost":
            self.device.failed(request, TransportError("lost"), self.moment())
            return
        if trouble in {"500", "429"}:
            self.device.answered(request, answer_of(int(trouble), {"retry-after": "1"}, b"{}"), sent_s, self.moment())
            return
        answer = self.service.answer(request, START_S + self.now_s)
        if trouble == "answer lost":
            self.device.failed(request, TransportError("lost"), self.moment())
        elif trouble == "portal":
            page = answer_of(200, {"content-type": "text/html"}, b"<html>sign in</html>")
            self.device.answered(request, page, sent_s, self.moment())
        else:
            self.device.answered(request, answer, sent_s, self.moment())

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
        seen = (
            list(self.service.readings),
            dict(ledger.facts),
            set(ledger.accepted_numbers),
            set(ledger.refused_numbers),
        )
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
            world.service.send(PAYLOADS[number], START_S + world.now_s)
        elif step == "send soon over":
            world.service.send(PAYLOADS[number], START_S + world.now_s, ttl_s=1.0)
        elif step == "run":
            world.run(number)
        else:
            world.power(on=step == "on")
    world.trouble = lambda: "none"
    world.power(on=True)
    world.run(200)
    world.device.sample(on=False)
    world.run(20)
    assert [command for command in world.service.commands.values() if command["status"] not in FINAL] == []
    assert world.device.settled
    assert world.ledger.accepted == len(world.service.readings) > 0
    never = [c for c in world.service.commands.values() if c["command_payload"] in PAYLOADS[3:5] + PAYLOADS[6:]]
    assert {command["status"] for command in never} <= {"rejected", "expired"}


def test_a_once_handler_that_the_power_left_is_not_run_again_and_an_idempotent_one_is():
    world = World(lambda: "none")
    valve = world.service.send(PAYLOADS[1], START_S + world.now_s)
    test = world.service.send(PAYLOADS[2], START_S + world.now_s)
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


def test_a_command_that_is_listed_again_after_a_lost_report_is_not_run_again():
    lost = iter(["none", "answer lost", "answer lost"])
    world = World(lambda: next(lost, "none"))
    ping = world.service.send(PAYLOADS[0], START_S + world.now_s)
    world.run(30)
    assert world.ledger.effects[ping] == 1
    assert world.service.commands[ping]["status"] == "succeeded"


def test_readings_that_could_not_be_sent_are_sent_in_the_same_request_after_a_power_cut():
    answers = iter(["none"] + ["answer lost"] * 6)
    world = World(lambda: next(answers, "none"))
    world.run(12)
    world.power(on=False)
    world.power(on=True)
    world.run(60)
    world.device.sample(on=False)
    world.run(10)
    found = audit_readings(world.ledger, tuple(world.service.readings))
    assert found.clean
    assert found.stored == world.ledger.accepted >= 10


def test_a_reading_that_the_service_refuses_is_set_aside_and_the_others_go_on():
    poison: list[dict[str, float]] = []

    class Picky(ServiceModel):
        def _handle(self, request, now_s):
            body = json.loads(request.body) if request.body else None
            bad = request.operation is Operation.READINGS and any(
                reading["sensor_data"] in poison for reading in (body if isinstance(body, list) else [body])
            )
            return (400, {"error": "validation_error"}) if bad else super()._handle(request, now_s)

    world = World(lambda: "500")
    world.service = Picky(world.offers)
    world.run(25)
    waiting = world.disk.outbox.next_batch(10, world.moment())
    assert len(waiting) >= 3
    poison.append(json.loads(waiting[1].text))
    world.trouble = lambda: "none"
    world.run(60)
    world.device.sample(on=False)
    world.run(20)
    assert (len(world.ledger.refused_numbers), len(world.disk.outbox)) == (1, 0)
    assert audit_readings(world.ledger, tuple(world.service.readings)).clean
    assert world.ledger.accepted >= 10


def test_results_go_into_a_table_on_a_plain_server():
    world = World(lambda: "none", offers=extensions.NONE)
    requests: list[Request] = []
    plain = world.service.answer

    def answer(request: Request, now_s: float) -> HttpAnswer:
        requests.append(request)
        if request.operation is Operation.REPORT:
            command = json.loads(request.body)["data_payload"]
            world.service.commands[command["command_id"]]["status"] = command["status"]
            return answer_of(201, {}, b"{}")
        return plain(request, now_s)

    world.service.answer = answer
    world.run(20)
    world.service.send(PAYLOADS[2], START_S + world.now_s)
    world.run(20)
    reports = [json.loads(request.body) for request in requests if request.operation is Operation.REPORT]
    assert [(report["table_name"], report["data_payload"]["status"]) for report in reports] == [
        ("command_results", "succeeded")
    ]
    assert all(
        isinstance(json.loads(request.body), dict) for request in requests if request.operation is Operation.READINGS
    )
    assert all(not request.headers.get("idempotency-key") for request in requests)


def test_wrong_keys_are_not_tried_again_at_once():
    world = World(lambda: "none")
    world.service.answer = lambda _request, _now_s: answer_of(401, {}, b'{"error":"invalid_credentials"}')
    world.run(60)
    assert 2 <= world.requests <= 6
    assert "401" in world.device.commands.fault


def test_an_interval_that_a_command_set_survives_a_power_cut():
    world = World(lambda: "none")
    world.service.send(PAYLOADS[5], START_S + world.now_s)
    world.run(10)
    world.power(on=False)
    world.power(on=True)
    before = world.ledger.accepted
    world.run(40)
    assert world.ledger.accepted - before >= 18


def refusing(world: World, status: int, body: bytes = b"{}", *, only_with_result: bool = False) -> list[float]:
    """Answer every report of the world's device with this; when each one came."""
    plain, times = world.service.answer, []

    def answer(request: Request, now_s: float) -> HttpAnswer:
        is_final = request.operation is Operation.REPORT and request.report.status != "in_progress"
        if is_final and (request.report.result is not None or not only_with_result):
            times.append(world.now_s)
            if b"command_not_found" in body:
                del world.service.commands[request.report.command_id]
            return answer_of(status, {"content-type": "application/json"}, body)
        return plain(request, now_s)

    world.service.answer = answer
    return times


@pytest.mark.parametrize(
    "offers", [extensions.ALL - {extensions.LONG_POLL}, extensions.NONE], ids=["announced", "plain"]
)
def test_a_place_for_results_that_does_not_exist_is_given_up_by_the_agents_own_limits(offers):
    world = World(lambda: "none", offers=offers)
    times = refusing(world, 404)
    world.run(10)  # its first contact: what a plain server lists there is history
    world.service.send(PAYLOADS[0], START_S + world.now_s)
    world.run(300)
    assert len(times) >= LIMITS[ReportFault.NO_PLACE].times
    assert (world.fleet.gauges.open_commands, world.fleet.gauges.results_put_aside) == (1, 0)
    world.run(400)
    assert times[-1] - times[0] >= LIMITS[ReportFault.NO_PLACE].span_s
    assert (world.fleet.gauges.open_commands, world.fleet.gauges.results_put_aside) == (0, 1)
    world.service.send(PAYLOADS[0], START_S + world.now_s)
    before = len(times)
    world.run(20)
    assert len(times) == before + 1
    assert (world.fleet.gauges.open_commands, world.fleet.gauges.results_put_aside) == (0, 2)
    assert world.ledger.accepted >= 100


def test_a_drain_does_not_wait_for_a_place_that_does_not_exist():
    world = World(lambda: "none")
    times = refusing(world, 405)
    world.service.send(PAYLOADS[0], START_S + world.now_s)
    world.run(5)
    world.device.sample(on=False)
    world.run(60)
    assert world.device.settled
    assert len(times) >= 5
    assert (world.fleet.gauges.open_commands, world.fleet.gauges.results_put_aside) == (0, 1)


def test_a_result_whose_content_is_refused_goes_again_without_it():
    world = World(lambda: "none")
    times = refusing(world, 422, b'{"error":"validation_error"}', only_with_result=True)
    ping = world.service.send(PAYLOADS[0], START_S + world.now_s)
    world.run(20)
    assert len(times) == 1
    assert world.service.commands[ping]["status"] == "succeeded"
    assert world.service.commands[ping]["error"].startswith("result_refused: 422")
    assert (world.fleet.gauges.open_commands, world.fleet.gauges.results_put_aside) == (0, 0)


def test_a_result_that_is_refused_even_without_its_content_is_put_aside():
    world = World(lambda: "none")
    times = refusing(world, 422)
    world.service.send(PAYLOADS[0], START_S + world.now_s)
    world.run(20)
    assert len(times) == 2
    assert (world.fleet.gauges.open_commands, world.fleet.gauges.results_put_aside) == (0, 1)


def test_a_result_that_is_no_longer_wanted_is_over():
    world = World(lambda: "none")
    refusing(world, 404, b'{"error":"command_not_found"}')
    world.service.send(PAYLOADS[0], START_S + world.now_s)
    world.run(20)
    assert (world.fleet.gauges.open_commands, world.fleet.gauges.results_put_aside) == (0, 0)
