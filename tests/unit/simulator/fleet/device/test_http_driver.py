"""The driver on virtual time, over an engine without sockets."""

from __future__ import annotations

import json
from dataclasses import replace
from email.utils import formatdate

import pytest

from agent.core.timekeeping import PollIntervals
from agent.wire.encoding import parse_time
from agent.wire.server import ALL_EXTENSIONS, BATCH_SENSOR_DATA, LONG_POLL
from simulator.fleet.audit.ledger import SEQUENCE_NAME
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.model import DeviceModel, Member
from simulator.fleet.engine.addresses import RequestHead, read_origin
from simulator.fleet.outcomes import Attempt, OutcomeClass
from tests.support.virtual_clock import VirtualClock
from tests.unit.simulator.fleet.device.fleet_fakes import (
    START_S,
    FakeEngine,
    RecordingLedger,
    RecordingObserver,
    a_fleet,
)

NOTHING = (200, {}, b'{"data":[],"next_cursor":null,"has_more":false}')
MINUTE = DeviceModel(interval_s=60.0, polling=PollIntervals(60.0, 60.0, 60.0), wait_s=0.0)
PLAIN = ALL_EXTENSIONS - {LONG_POLL, BATCH_SENSOR_DATA}
PING = b'{"data":[{"id":"c1","command_payload":{"command":"ping"},"status":"queued"}]}'


def well(request):
    return NOTHING if request.method == "GET" else (201, {}, b"{}")


class Bench:
    def __init__(self, devices=4, answer=well, model=MINUTE, offers=PLAIN, wall_off_s=0.0) -> None:
        self.clock = VirtualClock(1000.0)
        self.engine = FakeEngine(self.clock, self._answered)
        self.answer = answer
        self.ledger = RecordingLedger()
        self.observer = RecordingObserver()
        fleet = a_fleet(
            self.clock,
            offers=offers,
            numbered=True,
            began_s=1000.0,
            ledger=self.ledger,
            observer=self.observer,
            wall=lambda: START_S + self.clock.time() + wall_off_s,
        )
        members = [Member(f"d{number}", "p", model) for number in range(devices)]
        heads = [RequestHead(read_origin("http://service/api"), {"x-api-key": "k"})] * devices
        self.driver = HttpDriver(self.engine, fleet, members, heads)
        self.indices = range(devices)

    def _answered(self, request):
        return self.answer(request)

    def switch_on(self) -> None:
        for index in self.indices:
            self.driver.switch_on(index)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.time() + seconds)

    def written(self, name: str) -> list[tuple]:
        return [call[1:] for call in self.ledger.calls if call[0] == name]


def test_a_channel_has_one_request_on_its_way_however_long_it_takes():
    bench = Bench(devices=3, model=DeviceModel(interval_s=1.0, polling=PollIntervals(1.0, 1.0, 1.0), wait_s=0.0))
    bench.engine.takes_s = 5.0
    bench.switch_on()
    bench.run(100)
    assert bench.engine.most_at_once == 2
    assert max(told.ready_s - told.intended_s for told in bench.observer.exchanges) > 3.0
    assert all(told.sent_s >= told.ready_s for told in bench.observer.exchanges)


def test_the_power_goes_without_a_word_and_what_was_on_its_way_goes_again_as_it_was():
    bench = Bench(devices=1, answer=lambda request: None if request.method == "POST" else NOTHING)
    bench.switch_on()
    bench.run(90)
    first = [request for request in bench.engine.requests if request.method == "POST"]
    bench.driver.switch_off(0)
    assert (bench.engine.cuts, bench.driver.fleet.online) == ([0], 0)
    assert bench.written("unanswered") == [(0, (1,), 90.0)]
    told = len(bench.observer.exchanges)
    bench.run(600)
    assert len(bench.observer.exchanges) == told
    bench.answer = well
    bench.driver.switch_on(0)
    bench.run(30)
    again = [request for request in bench.engine.requests if request.method == "POST"][len(first) :]
    assert (again[0].body, again[0].headers) == (first[0].body, first[0].headers)
    assert bench.ledger.resent()[:1] == [((1,), True)]
    assert bench.written("accepted")[0][:2] == (0, (1,))
    told = next(told for told in bench.observer.exchanges if told.operation == "http.sensor_data")
    assert told.attempt is Attempt.AMBIGUOUS


LIMITED = (429, {"retry-after": "1"}, b'{"error":"rate_limited","message":"slowly"}')
UNWELL = (503, {}, b'{"error":"unavailable","message":"later"}')
RUNNING = (409, {}, b'{"error":"idempotency_key_in_use","message":"one with this key is still running"}')
FIRST, REFUSED, AMBIGUOUS = Attempt


@pytest.mark.parametrize("path", ["sensor-data", "result"])
@pytest.mark.parametrize(
    ("answers", "attempts"),
    [
        ([LIMITED, LIMITED], [FIRST, REFUSED, REFUSED]),
        ([(401, {}, b"{}")], [FIRST, REFUSED]),
        ([UNWELL], [FIRST, AMBIGUOUS]),
        ([OutcomeClass.TIMEOUT], [FIRST, AMBIGUOUS]),
        ([RUNNING], [FIRST, AMBIGUOUS]),
        # Once somebody may have it, no refusal takes that back.
        ([LIMITED, OutcomeClass.TRANSPORT, LIMITED], [FIRST, REFUSED, AMBIGUOUS, AMBIGUOUS]),
    ],
    ids=["limited", "locked-out", "5xx", "no-answer", "still-running", "mixed"],
)
def test_resends_after_refusals_are_told_apart_from_those_that_the_service_may_have(path, answers, attempts):
    left = list(answers)

    def answer(request):
        if request.method == "GET":
            return (200, {}, PING) if path == "result" and left else well(request)
        return left.pop(0) if path in request.target and left else well(request)

    bench = Bench(devices=1, answer=answer, model=replace(MINUTE, interval_s=3600.0 if path == "result" else 60.0))
    bench.switch_on()
    bench.run(500)
    operation = "http.report" if path == "result" else "http.sensor_data"
    told = [told.attempt for told in bench.observer.exchanges if told.operation == operation]
    assert told[: len(attempts)] == attempts
    assert set(told[len(attempts) :]) <= {FIRST}
    if path == "sensor-data":
        written = bench.ledger.resent()
        assert written == [((1,), attempt is AMBIGUOUS) for attempt in attempts[1:]]
        doubts = sum(answer not in (LIMITED, (401, {}, b"{}")) for answer in answers)
        assert len(bench.written("unanswered")) == doubts


@pytest.mark.parametrize(("before", "attempt"), [([], REFUSED), ([OutcomeClass.TIMEOUT], AMBIGUOUS)])
def test_the_readings_of_a_batch_that_was_refused_go_again_as_what_the_batch_was(before, attempt):
    left = [*before, (400, {}, b'{"error":"invalid","message":"one of them"}')]

    def answer(request):
        if request.method == "GET" or not isinstance(request.json(), list):
            return well(request)
        return left.pop(0) if left else (201, {}, b'{"accepted":%d,"errors":[]}' % len(request.json()))

    model = replace(MINUTE, interval_s=10.0, batch=3)
    bench = Bench(devices=1, answer=answer, model=model, offers=ALL_EXTENSIONS - {LONG_POLL})
    bench.engine.takes_s = 25.0  # so that a batch waits when the first reading is there
    bench.switch_on()
    bench.run(60)
    bench.engine.takes_s = 0.01
    bench.run(200)
    (_, batch, *_) = bench.written("unanswered" if before else "resent_after_refusal")[0]
    written = bench.ledger.resent()
    again = written[len(before) :]
    assert (left, len(again[0][0])) == ([], 1)
    assert {ambiguous for _, ambiguous in again} == {attempt is AMBIGUOUS}
    assert len([key for keys, _ in again for key in keys]) == len({key for keys, _ in again for key in keys}) > 1
    assert not before or {key for keys, _ in again for key in keys} == set(batch)


def test_the_readings_of_a_refused_batch_go_one_by_one_until_all_of_them_are_settled():
    sent: list[list[int]] = []

    def answer(request):
        if request.method == "GET":
            return well(request)
        items = request.json() if isinstance(request.json(), list) else [request.json()]
        sent.append([item["sensor_data"][SEQUENCE_NAME] for item in items])
        if 4 in sent[-1]:
            return 400, {}, b'{"error":"invalid","message":"a bad reading"}'
        return 201, {}, b'{"accepted":%d,"errors":[]}' % len(items)

    model = replace(MINUTE, interval_s=10.0, batch=6)
    bench = Bench(devices=1, answer=answer, model=model, offers=ALL_EXTENSIONS - {LONG_POLL})
    bench.engine.takes_s = 65.0  # so that a batch waits when the first reading is there
    bench.switch_on()
    bench.run(80)
    bench.engine.takes_s = 0.01
    bench.run(200)
    bench.engine.takes_s = 25.0
    bench.run(100)
    assert sent[1] == [2, 3, 4, 5, 6, 7]
    assert [keys for keys in sent[2:] if set(keys) & set(sent[1])] == [[2], [3], [4], [5], [6], [7]]
    assert len(sent[-1]) > 1, "then in batches again"
    assert [keys for _, keys, _ in bench.written("refused")] == [(4,)]


@pytest.mark.parametrize("wall_off_s", [0.0, -86_400.0])
def test_the_date_of_a_held_poll_is_that_of_its_begin_and_readings_carry_the_right_time_nevertheless(wall_off_s):
    """A server may write the head of an answer before it waits: such a ``Date`` is as old as the poll was long."""
    begun = {}

    def answer(request):
        if request.method == "POST":
            now_s = bench.clock.time()
            body = [] if request.target.endswith("result") else json.loads(request.body)
            carried.extend(
                (now_s, parse_time(each["recorded_at"])) for each in ([body] if isinstance(body, dict) else body)
            )
            return 201, {"date": formatdate(START_S + now_s, usegmt=True)}, b"{}"
        begun[request.device] = request.sent_s
        status, headers, body = NOTHING
        return status, {**headers, "date": formatdate(START_S + request.sent_s, usegmt=True)}, body

    carried: list[tuple[float, float]] = []
    model = DeviceModel(interval_s=30.0, polling=PollIntervals(1.0, 1.0, 1.0), wait_s=20.0)
    bench = Bench(devices=20, model=model, answer=answer, offers=ALL_EXTENSIONS, wall_off_s=wall_off_s)
    bench.engine.delay_s = lambda request: 20.0 if request.method == "GET" else 0.0
    bench.switch_on()
    bench.run(100)
    assert len(begun) == 20
    # A right wall clock is believed; a wrong one gives way, once a quick answer came, to bounds two seconds apart.
    first_s, off_s = (1000, 0.02) if not wall_off_s else (1035, 2.1)
    dated = [recorded_s - START_S - now_s for now_s, recorded_s in carried if now_s > first_s]
    assert len(dated) >= 40
    assert max(map(abs, dated)) < off_s
