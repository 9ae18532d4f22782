"""The operator's orders: each is sent until it is known what became of it, and counted once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.workload.operator import Operator, OrderContext
from tests.virtual_clock import VirtualClock

RUNS = (409, "idempotency_key_in_use")
TAKEN = (202, "")
FULL = (409, "command_queue_full")


@dataclass
class Service:
    """Answers each attempt with the next of its answers, the last one for ever; None is none in time."""

    clock: VirtualClock
    answers: list[tuple[int, str] | None]
    attempts: list[bytes] = field(default_factory=list)

    def send(self, index, message, caller, timeout_s):
        self.attempts.append(message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        now_s = self.clock.time()
        if answer is None:
            caller.failed(OutcomeClass.TIMEOUT, f"no answer within {timeout_s:g} s", now_s, now_s + timeout_s)
            return
        status, error = answer
        record = {"command_id": "c1", "device_id": "d1", "command_payload": {"command": "ping"}, "status": "sent"}
        body = json.dumps({"error": error, "message": ""} if error else record).encode()
        headers = [(b"Retry-After", b"1")] if error else []
        caller.answered(status, headers, body, now_s, now_s + 0.01)


class LedgerFake:
    """What was written down."""

    def __init__(self):
        self.ordered, self.unanswered = [], 0

    def command_ordered(self, device, command_id, at_s):
        self.ordered.append(command_id)

    def order_unanswered(self, device, at_s):
        self.unanswered += 1


class Nobody:
    """Counts nothing."""

    def exchanged(self, *told, **more):
        pass

    def faulted(self, *told):
        pass


def ordered(*answers, chance=0, kind=Service):
    """One order, to its end; ``chance`` draws other pauses."""
    clock, ledger = VirtualClock(), LedgerFake()
    service = kind(clock, list(answers))
    template = RequestTemplate(read_origin("http://127.0.0.1:1"), {})
    context = OrderContext(service, [template], Wheel(clock), clock.time, 10.0, frozenset({"idempotency-key"}), "run")
    operator = Operator(
        context, ["d1"], chance, [({"command": "ping"}, 60.0)], ledger=ledger, observer=Nobody(), began_s=0.0,
        on_ordered=lambda _ordered: None,
    )  # fmt: skip
    operator.send(chance, 0, 1, 0.0)
    clock.run_until(600.0)
    assert operator.under_way == 0
    return operator, ledger, service.attempts


def test_an_order_whose_first_attempt_still_runs_is_asked_for_again_with_the_same_key():
    operator, ledger, attempts = ordered(None, RUNS, RUNS, TAKEN)
    assert (ledger.ordered, operator.refused, operator.count_unnumbered()) == (["c1"], {}, 0)
    assert len(attempts) == 4
    assert len(set(attempts)) == 1


def test_an_order_that_never_stops_running_is_uncertain_and_not_refused():
    operator, ledger, _ = ordered(None, RUNS)
    assert (ledger.ordered, ledger.unanswered, operator.refused) == ([], 1, {})


class AwayService(Service):
    """Nobody listens for a while."""

    away_s = 30.0

    def send(self, index, message, caller, timeout_s):
        if self.clock.time() >= self.away_s:
            super().send(index, message, caller, timeout_s)
        else:
            self.attempts.append(message)
            caller.failed(OutcomeClass.TRANSPORT, "nobody listens", None, self.clock.time())


@pytest.mark.parametrize("chance", range(20))
def test_an_order_outlasts_a_service_that_is_away_for_half_a_minute_whatever_the_pauses_are(chance):
    operator, ledger, _ = ordered(TAKEN, chance=chance, kind=AwayService)
    assert (ledger.ordered, operator.refused, operator.count_unnumbered()) == (["c1"], {}, 0)


def test_an_order_that_nobody_takes_is_given_up_in_the_end():
    operator, ledger, attempts = ordered((503, "service_busy"))
    assert (ledger.ordered, ledger.unanswered, operator.count_unnumbered()) == ([], 1, 1)
    assert 8 <= len(attempts) < 40


@pytest.mark.parametrize("before", [[], [None]])
def test_an_order_that_is_refused_is_not_sent_again(before):
    operator, ledger, attempts = ordered(*before, FULL)
    assert operator.refused == {"409 command_queue_full": 1}
    assert (ledger.ordered, ledger.unanswered, len(attempts)) == ([], 0, len(before) + 1)
