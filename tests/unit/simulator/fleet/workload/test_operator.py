"""The operator on virtual time: which orders go out again, and what each sending counts as."""

from __future__ import annotations

import pytest

from agent.wire.server import IDEMPOTENCY_KEY
from simulator.fleet.device.model import Fleet
from simulator.fleet.engine.addresses import RequestHead, read_origin
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.scenario.model import CommandSettings
from simulator.fleet.workload.operator import Operator
from tests.support.virtual_clock import VirtualClock
from tests.unit.simulator.fleet.device.fleet_fakes import FakeEngine, RecordingLedger, RecordingObserver

LIMITED = (429, {"retry-after": "2"}, b'{"error":"rate_limited"}')
RUNNING = (409, {}, b'{"error":"idempotency_key_in_use"}')
UNWELL = (503, {}, b"{}")
TAKEN = (201, {}, b'{"id":"c1","device_id":"d0","command_payload":{"command":"ping"},"status":"queued"}')
FIRST, REFUSED, AMBIGUOUS = Attempt


class UnreachableOnce(FakeEngine):
    """Nobody listens at first: nothing leaves."""

    def __init__(self, *given, refusals=0):
        super().__init__(*given)
        self.refusals = refusals

    def send(self, device, message, caller, timeout_s):
        if self.refusals:
            self.refusals -= 1
            caller.failed(OutcomeClass.TRANSPORT, "nobody listens", None, self._clock.time())
        else:
            super().send(device, message, caller, timeout_s)


class Bench:
    def __init__(self, answers, offers=frozenset({IDEMPOTENCY_KEY}), refusals=0, keys=("k",), orders=1):
        left = [*answers, TAKEN]
        clock = VirtualClock(100.0)
        self.engine = UnreachableOnce(clock, lambda _request: left.pop(0), refusals=refusals)
        self.ledger, self.observer, self.ordered = RecordingLedger(), RecordingObserver(), []
        heads = [RequestHead(read_origin("http://service/api"), {"x-api-key": key}) for key in keys]
        fleet = Fleet(
            wheel=Wheel(clock),
            offers=offers,
            seed=1,
            run="run",
            began_s=100.0,
            ledger=self.ledger,
            observer=self.observer,
            monotonic=clock.time,
        )
        ping = CommandSettings(payload={"command": "ping"}, rate_per_s=1.0)
        self.operator = Operator(
            self.engine,
            fleet,
            heads,
            ["d0"],
            offers,
            [ping],
            lambda command_id, _stream, due_s, _expires_s: self.ordered.append((command_id, due_s)),
        )
        for serial in range(1, orders + 1):
            self.operator.send(0, 0, serial, 100.0)
        clock.run_until(400.0)

    @property
    def attempts(self) -> list[Attempt]:
        return [told.attempt for told in self.observer.exchanges]


@pytest.mark.parametrize(
    ("answers", "attempts"),
    [
        ([LIMITED, LIMITED], [FIRST, REFUSED, REFUSED]),
        ([UNWELL], [FIRST, AMBIGUOUS]),
        ([RUNNING, LIMITED], [FIRST, AMBIGUOUS, AMBIGUOUS]),
        ([LIMITED, OutcomeClass.TIMEOUT, LIMITED], [FIRST, REFUSED, AMBIGUOUS, AMBIGUOUS]),
    ],
    ids=["limited", "5xx", "still-running", "mixed"],
)
def test_an_order_goes_out_until_it_is_taken_and_tells_what_each_sending_is(answers, attempts):
    bench = Bench(answers)
    assert bench.attempts == attempts
    assert bench.ordered == [("c1", 100.0)]
    assert len({request.headers["idempotency-key"] for request in bench.engine.requests}) == 1
    assert (bench.operator.under_way, bench.operator.refused, bench.operator.count_unnumbered()) == (0, {}, 0)


def test_an_order_that_never_left_goes_again_as_the_first():
    bench = Bench([], refusals=2)
    assert bench.attempts == [FIRST] * 3
    assert bench.ordered == [("c1", 100.0)]


def test_without_idempotency_keys_only_a_refused_order_goes_again():
    bench = Bench([LIMITED, UNWELL], offers=frozenset())
    assert bench.attempts == [FIRST, REFUSED]
    assert bench.ordered == []
    assert [call[0] for call in bench.ledger.calls] == ["order_unanswered"]


def test_an_order_that_never_stops_running_is_in_doubt_and_one_that_is_refused_is_not_sent_again():
    running = Bench([RUNNING] * 200)
    assert [call[0] for call in running.ledger.calls] == ["order_unanswered"]
    assert running.operator.refused == {}
    full = Bench([(409, {}, b'{"error":"command_queue_full"}')])
    assert full.operator.refused == {"409 command_queue_full": 1}
    assert (len(full.attempts), full.ledger.calls) == (1, [])


def test_an_order_outlasts_a_service_that_is_away_for_half_a_minute_and_is_given_up_in_the_end():
    assert Bench([UNWELL] * 8).ordered == [("c1", 100.0)]
    gone = Bench([UNWELL] * 100)
    assert gone.ordered == []
    assert 8 <= len(gone.attempts) < 40
