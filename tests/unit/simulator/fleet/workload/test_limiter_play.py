"""The limiter's test as a worker plays it: what it tells when it ended, when it could not, and when nobody answers."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.record import CHECKS
from simulator.fleet.target.limiter.trial import TimeSource
from simulator.fleet.target.limiter.values import LimiterRules
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload.base import Leftover
from simulator.fleet.workload.limiter import LimiterJob, LimiterWorkload
from simulator.keys import write_secret
from tests.service_running import running


@pytest.fixture
def job(tmp_path):
    def make(base_url, keys=("mk_a", "msk_a")):
        pair = KeyPairFile(keys[0], write_secret(tmp_path / "secret_key", keys[1]))
        return LimiterJob(base_url, (pair,), LimiterRules(20), timeout_s=60.0)

    return make


def play(job, *, patience_s=60.0, pace=None):
    async def run():
        recorder = Recorder(0)
        played = LimiterWorkload(job, recorder, pace)
        played.begin(time.monotonic())
        left = await played.drain(time.monotonic(), time.monotonic() + patience_s)
        return left, await played.close(), recorder

    return asyncio.run(run())


def test_a_test_that_ended_tells_every_check_and_fails_for_a_broken_promise(job):
    """The service gives 21 and the promise is 20; its clock goes on when the test sleeps."""
    with running(rate_limit=21) as bench:

        async def sleep(seconds):
            bench.clock.advance(max(0.0, seconds))

        def now():
            return bench.clock.now_ms() / 1000

        given = job(bench.service.base_url, (bench.service.api_key, bench.service.secret_key.reveal()))
        left, summary, recorder = play(given, pace=TimeSource(now, now, sleep))
    assert left == Leftover()
    assert len(summary.extras[CHECKS]) == 9
    assert summary.extras[CHECKS]["count"] == {
        "outcome": "broken",
        "expected": "exactly 20 in a window",
        "observed": "of 30 requests in one window 21 were let through and 9 got 429",
    }
    assert any(sentence.startswith("count: of 30 requests") for sentence in summary.failures)
    assert recorder.sent > 60
    assert set(recorder.cut(0).delta().operations["http.devices"]) == {"ok", "limited"}, "a wrong key has to be refused"
    held = sum(check["outcome"] == "held" for check in summary.extras[CHECKS].values())
    assert summary.held.startswith(f"{held} of 9 checks of the limiter held; fairness: not checked, it needs two key")


def test_a_test_that_was_not_given_its_time_says_how_much_it_needs(job):
    with running(rate_limit=21) as bench:
        given = job(bench.service.base_url, (bench.service.api_key, bench.service.secret_key.reveal()))
        left, summary, _ = play(given, patience_s=0.2)
    assert left.count == 1
    assert "let the phases last 240 s" in summary.failures[0]


def test_a_target_that_does_not_answer_is_told(job):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        _, summary, _ = play(job(f"http://127.0.0.1:{nobody.getsockname()[1]}"))
    assert summary.failures == ("the limiter's test ended: the target does not answer",)
    assert summary.extras == {CHECKS: {}}
