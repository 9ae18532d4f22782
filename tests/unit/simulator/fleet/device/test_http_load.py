"""Pure load on virtual time."""

from __future__ import annotations

import json

import pytest

from agent.wire import extensions
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.device.http_load import HttpLoad
from simulator.fleet.device.load_base import LoadDevice, RequestKind
from simulator.fleet.device.model import Clocks, SharedSettings
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, FakeEngine, RecordingLedger, RecordingObserver
from tests.virtual_clock import VirtualClock


class Bench:
    def __init__(self, answer=lambda _request: (201, {}, b"{}"), **options) -> None:
        self.clock = VirtualClock(100.0)
        self.engine = FakeEngine(self.clock, answer)
        self.ledger = RecordingLedger()
        self.observer = RecordingObserver()
        fleet = SharedSettings(extensions.ALL, seed=1, run="run", numbered=True, ledger=self.ledger, began_s=100.0)
        self.load = HttpLoad(
            self.engine,
            Wheel(self.clock),
            [RequestTemplate(read_origin("http://service:80/api"), {"x-api-key": "k"})] * 3,
            [LoadDevice("d10"), LoadDevice("d11"), LoadDevice("d12")],
            fleet,
            first_index=10,
            observer=self.observer,
            clocks=Clocks(self.clock.time, lambda: START_S + self.clock.time()),
            **options,
        )


def test_every_reading_is_made_for_its_request_and_written_down_before_it_goes_out():
    bench = Bench()
    for device in (10, 11, 10):
        bench.load.send(RequestKind.SENSOR_DATA, device, 100.0)
    assert [call[0] for call in bench.ledger.calls] == ["reading_made", "reading_sent"] * 3
    bodies = [request.json() for request in bench.engine.requests]
    assert [(body["device_id"], body["sensor_data"].pop("fleet_sequence")) for body in bodies] == [
        ("d10", 1),
        ("d11", 1),
        ("d10", 2),
    ]
    sent = [call for call in bench.ledger.calls if call[0] == "reading_sent"]
    assert [digest_values(body["sensor_data"]) for body in bodies] == [call[3] for call in sent]
    assert bodies[0]["sensor_data"] != bodies[1]["sensor_data"]
    assert len({request.headers["idempotency-key"] for request in bench.engine.requests}) == 3
    bench.clock.run_until(101.0)
    assert bench.load.under_way == set()
    assert [call[:3] for call in bench.ledger.calls[6:]] == [
        ("readings_accepted", 10, (1,)),
        ("readings_accepted", 11, (1,)),
        ("readings_accepted", 10, (2,)),
    ]


def test_what_was_waited_counts_from_when_it_was_due():
    bench = Bench()
    bench.clock.run_until(105.0)
    bench.load.send(RequestKind.POLL, 12, 103.0)
    bench.clock.run_until(110.0)
    (told,) = bench.observer.exchanges
    assert (told.operation, told.device, told.intended_s, told.sent_s) == ("http.poll", 12, 103.0, 105.0)
    assert told.now_s == pytest.approx(105.0 + bench.engine.takes_s)
    assert told.attempt is Attempt.FIRST


@pytest.mark.parametrize(
    ("answer", "outcome", "written"),
    [
        ((400, {}, b'{"error":"validation_error"}'), OutcomeClass.REFUSED, ["readings_refused"]),
        ((429, {}, b"{}"), OutcomeClass.LIMITED, []),
        ((503, {}, b"{}"), OutcomeClass.SERVER_ERROR, ["readings_unanswered"]),
        ((200, {"content-type": "text/html"}, b"<html>"), OutcomeClass.UNEXPECTED, ["readings_unanswered"]),
        (OutcomeClass.TIMEOUT, OutcomeClass.TIMEOUT, ["readings_unanswered"]),
    ],
)
def test_nothing_is_sent_twice_and_what_became_of_it_is_written_down(answer, outcome, written):
    bench = Bench(lambda _request: answer)
    bench.load.send(RequestKind.SENSOR_DATA, 10, 100.0)
    bench.clock.run_until(200.0)
    assert len([request for request in bench.engine.requests if request.method == "POST"]) == 1
    assert [told.outcome for told in bench.observer.exchanges] == [outcome]
    assert [call[0] for call in bench.ledger.calls[2:]] == written
    assert len(bench.observer.faults) == 1


def test_commands_are_pings_that_expire_and_are_known_by_the_services_id():
    bench = Bench(lambda _request: (201, {}, b'{"id":"c7","command_payload":{}}'))
    bench.load.send(RequestKind.SEND_COMMAND, 11, 100.0)
    bench.clock.run_until(101.0)
    assert bench.engine.requests[0].json() == {
        "device_id": "d11",
        "command_payload": {"command": "ping"},
        "ttl_seconds": 60,
    }
    assert bench.ledger.calls == [("command_ordered", 11, "c7", pytest.approx(bench.engine.takes_s))]


def test_a_command_whose_answer_names_no_id_may_exist():
    bench = Bench(lambda _request: (201, {}, b"[]"))
    bench.load.send(RequestKind.SEND_COMMAND, 11, 100.0)
    bench.clock.run_until(101.0)
    assert [call[0] for call in bench.ledger.calls] == ["order_unanswered"]


def test_open_arrivals_without_an_answer_at_the_end_are_timeouts_and_counted_as_undelivered():
    bench = Bench(lambda _request: OutcomeClass.TRANSPORT)  # as an engine ends what is under way when it is closed
    bench.engine.takes_s = 5.0
    bench.load.send(RequestKind.SENSOR_DATA, 10, 100.0)
    bench.load.send(RequestKind.POLL, 11, 100.5)
    bench.load.start_users(RequestKind.POLL, 1)
    bench.clock.run_until(101.0)
    assert {sending.device for sending in bench.load.under_way} == {10, 11}
    bench.load.end()
    bench.clock.run_until(200.0)
    assert [(told.outcome, told.now_s) for told in bench.observer.exchanges] == [(OutcomeClass.TIMEOUT, 105.0)] * 3
    assert bench.load.undelivered == 2  # a closed user waits for its answer; that it has none is no lost load
    assert bench.load.under_way == set()
    assert [call[0] for call in bench.ledger.calls[2:]] == ["readings_unanswered"]
    assert {sentence for _, _, sentence in bench.observer.faults} == {"the run was over before the answer"}


def test_closed_users_send_the_next_request_a_pause_after_the_answer_and_take_turns():
    bench = Bench()
    bench.load.start_users(RequestKind.SENSOR_DATA, 2, pause_s=0.5)
    bench.clock.run_until(100.0 + 4 * (0.5 + bench.engine.takes_s))
    bench.load.stop_users()
    bench.clock.run_until(200.0)
    devices = [json.loads(request.body)["device_id"] for request in bench.engine.requests]
    assert devices[:6] == ["d10", "d11", "d12", "d10", "d11", "d12"]
    assert len(devices) in {8, 10}
    assert bench.load.under_way == set()
    lags = [told.sent_s - told.intended_s for told in bench.observer.exchanges]
    assert max(lags) == pytest.approx(0.0, abs=1e-6)
