"""The operator in whole runs on virtual time: which orders go out again, and what each sending counts as."""

from __future__ import annotations

import pytest

from agent.wire.server import IDEMPOTENCY_KEY
from simulator.fleet.metrics.histogram import Histogram
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker, merged
from tests.support.virtual_fleet.service import NEVER, UNREACHABLE, Sent
from tests.support.virtual_fleet.stage import OFFERS

LIMITED = (429, {"error": "rate_limited"})
RUNNING = (409, {"error": "idempotency_key_in_use"})
FULL = (409, {"error": "command_queue_full"})
UNWELL = (503, {"error": "unwell"})


@pytest.fixture
def order(tmp_path):
    """A run with one order, which meets these answers before the service takes it."""

    def perform(answers, offers=OFFERS):
        left = iter(answers)

        def trouble(sent: Sent):
            return next(left, None) if sent.operation == "POST /commands/send" else None

        commands = [{"payload": {"command": "ping"}, "rate_per_s": 0.1}]
        more = {"commands": commands, "drain_s": 300, "target": {"dialect": {"extensions": sorted(offers)}}}
        return Looker(tmp_path)(merged(CONTEXTS["core-poll"], more), trouble).run

    return perform


def sendings(run) -> dict[str, tuple[int, int, int]]:
    """By outcome: how many went out for the first time, after refusals alone, and when the service may have it."""
    tallies = run.record.operations["http.send_command"].items()
    counts = [(str(name), tally.count, tally.first_attempts, tally.resends_ambiguous) for name, tally in tallies]
    return {name: (first, count - first - open_, open_) for name, count, first, open_ in counts}


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ([LIMITED, LIMITED], {"limited": (1, 1, 0), "ok": (0, 1, 0)}),
        ([UNWELL], {"server_error": (1, 0, 0), "ok": (0, 0, 1)}),
        ([RUNNING, LIMITED], {"refused": (1, 0, 0), "limited": (0, 0, 1), "ok": (0, 0, 1)}),
        ([LIMITED, NEVER, LIMITED], {"limited": (1, 0, 1), "timeout": (0, 1, 0), "ok": (0, 0, 1)}),
        ([UNREACHABLE] * 2, {"transport": (2, 0, 0), "ok": (1, 0, 0)}),
        ([UNWELL] * 8, {"server_error": (1, 0, 7), "ok": (0, 0, 1)}),
    ],
    ids=["limited", "5xx", "still running", "mixed", "never left", "away for half a minute"],
)
def test_an_order_goes_out_until_it_is_taken_and_tells_what_each_sending_is(order, answers, sent):
    run = order(answers)
    assert sendings(run) == sent
    assert len({each.headers["idempotency-key"] for each in run.orders}) == 1
    (ping, _) = run.record.commands
    assert (ping.sent, ping.refused, ping.unanswered, dict(ping.ends)) == (1, 0, 0, {"succeeded": 1})
    waited = Histogram.decode(run.record.operations["commands.sent"]["ok"].response).percentile(100)
    assert waited == pytest.approx(run.orders[-1].at_s - 5.0, rel=0.02, abs=0.02), "from when the first one was due"


@pytest.mark.parametrize(
    ("answers", "offers", "least", "most"),
    [
        ([UNWELL] * 100, OFFERS, 8, 40),
        ([RUNNING] * 100, OFFERS, 8, 40),
        ([LIMITED, UNWELL], OFFERS - {IDEMPOTENCY_KEY}, 2, 2),
        ([NEVER], OFFERS - {IDEMPOTENCY_KEY}, 1, 1),
    ],
    ids=["away for long", "running for ever", "5xx without keys", "no answer without keys"],
)
def test_an_order_that_cannot_go_again_or_goes_again_in_vain_is_in_doubt(order, answers, offers, least, most):
    run = order(answers, offers)
    assert least <= len(run.orders) <= most
    (ping, _) = run.record.commands
    assert (ping.sent, ping.refused, ping.unanswered) == (1, 0, 1)
    assert run.record.audit.commands.ambiguous == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(LIMITED, "1 commands were refused: 429 rate_limited"), (UNREACHABLE, "1 commands never left: ")],
)
def test_an_order_that_is_given_up_and_surely_did_not_arrive_is_in_no_doubt(order, answer, reason):
    run = order([answer] * 100)
    (ping, _) = run.record.commands
    assert (ping.sent, ping.refused, ping.unanswered) == (1, 1, 0)
    assert run.record.audit.commands is None
    assert run.record.verdict.sentences[0].startswith(reason)
    assert run.record.duration_s < 280, "the drain does not wait for a command that cannot come"


def test_an_order_that_is_refused_is_not_sent_again(order):
    run = order([FULL])
    (ping, _) = run.record.commands
    assert (len(run.orders), ping.refused, ping.unanswered) == (1, 1, 0)
    assert run.record.verdict.sentences[0] == "1 commands were refused: 409 command_queue_full"
