"""The limiter's test: our own service holds, and every broken promise is found by the check that is about it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from email.utils import formatdate

import pytest

from agent.errors import TransportError
from agent.wire.secret import Secret
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.target.limiter.checks import check_headers
from simulator.fleet.target.limiter.client import LimiterClient
from simulator.fleet.target.limiter.trial import RateLimiterTest, TimeSource
from simulator.fleet.target.limiter.values import CheckOutcome, LimiterRules, Reply
from simulator.keys import Keys
from tests.service_running import running

T0_S = 1_767_225_600.0


@dataclass
class MadeUpLimiter:
    """A target in virtual time; each setting is a promise that it breaks.

    Attributes:
        quota: what it really gives.
        told_quota: what it tells.
        shift_s: how far its windows are off the calendar.
        early_s: how long before the window's end it gives a new quota.
        wait: added to ``Retry-After``.
        shared: all keys have one count.
        charges_401: wrong key pairs are counted, too.
        limits_401: a wrong key pair of a key without quota gets 429.
        dialects: which headers it sends.
        sliding: a moving window instead of a fixed one.
        punishes: every 429 begins the window anew.
        broken_every: every so many requests end as 500.
        x_off: how far X-RateLimit-Remaining is off.
        date_lag_s: how old the second in Date is.
    """

    quota: int = 20
    told_quota: int = 20
    shift_s: float = 0.0
    early_s: float = 0.0
    wait: float = 0
    shared: bool = False
    charges_401: bool = False
    limits_401: bool = False
    dialects: tuple[str, ...] = ("ratelimit", "x-ratelimit", "retry-after", "date")
    sliding: bool = False
    x_off: int = 0
    broken_every: int = 0
    date_lag_s: float = 0.0
    now_s: float = T0_S + 17.3
    used: dict[int, list[float]] = field(default_factory=dict)
    requests: int = 0

    def pace(self):
        async def sleep(seconds):
            self.now_s += max(0.0, seconds)
            await asyncio.sleep(0)

        return TimeSource(lambda: self.now_s - T0_S, lambda: self.now_s, sleep)

    async def ask(self, key, good):
        self.requests += 1
        number, at_s = self.requests, self.now_s
        await asyncio.sleep(0)
        window, into_s = divmod(at_s + self.early_s - self.shift_s, 60.0)
        times = self.used.setdefault(0 if self.shared else key, [])
        if self.sliding:
            times[:] = [then_s for then_s in times if then_s > at_s - 60]
        else:
            times[:] = [then_s for then_s in times if (then_s + self.early_s - self.shift_s) // 60 == window]
        if not good and not self.charges_401:
            is_limited = self.limits_401 and len(times) >= self.quota
            return Reply(429 if is_limited else 401, {}, at_s - T0_S, at_s - T0_S)
        times.append(at_s)
        limited = len(times) > self.quota
        reset_s = 60.0 - into_s + self.early_s
        left = max(0, self.told_quota - len(times))
        headers = {}
        if "ratelimit" in self.dialects:
            headers["ratelimit-policy"] = f'"default";q={self.told_quota};w=60'
            headers["ratelimit"] = f'"default";r={left};t={-int(-reset_s // 1)}'
        if "x-ratelimit" in self.dialects:
            headers["x-ratelimit-limit"] = str(self.told_quota)
            headers["x-ratelimit-remaining"] = str(left + self.x_off)
            headers["x-ratelimit-reset"] = str(round(at_s + reset_s))
        if "date" in self.dialects:
            headers["date"] = formatdate(at_s - self.date_lag_s, usegmt=True)
        if limited and "retry-after" in self.dialects:
            headers["retry-after"] = str(max(0, -int(-(reset_s + self.wait) // 1)))
        status = 429 if limited else 401 if not good else 200
        if self.broken_every and number % self.broken_every == 0:
            status = 500
        return Reply(status, headers, at_s - T0_S, at_s - T0_S)


def outcomes(limiter, *, keys=2, **rules):
    trial = RateLimiterTest(
        limiter.ask, keys, LimiterRules(**{"quota": 20, **rules}), limiter.pace(), lambda _text: None
    )
    results = asyncio.run(trial.run())
    return {result.name: result for result in results}


def broken(results):
    return {name for name, result in results.items() if result.outcome is CheckOutcome.BROKEN}


ALL = {
    "count",
    "headers",
    "retry_after",
    "fairness",
    "edge",
    "calendar",
    "edge_quota",
    "unauthorized",
    "recovery",
}


@pytest.mark.parametrize("quota", [1, 2, 20, 1000])
@pytest.mark.parametrize("begin_s", [0.0, 17.3, 59.99])
def test_a_limiter_that_keeps_its_promise_holds_in_every_check(quota, begin_s):
    limiter = MadeUpLimiter(quota=quota, told_quota=quota, now_s=T0_S + begin_s)
    results = outcomes(limiter, quota=quota)
    assert {result.outcome for result in results.values()} == {CheckOutcome.HELD}, results
    assert set(results) == ALL
    assert limiter.now_s - T0_S < 4 * 60 + 2


@pytest.mark.parametrize(
    ("faults", "found"),
    [
        ({"quota": 21}, {"count", "edge_quota"}),
        ({"quota": 19}, {"count", "edge_quota"}),
        ({"told_quota": 25}, {"headers", "recovery"}),
        ({"x_off": 1}, {"headers"}),
        ({"shift_s": 20.0}, {"calendar"}),
        ({"early_s": 5.0, "wait": 5.0}, {"edge", "calendar"}),
        ({"wait": -10}, {"retry_after", "edge"}),
        ({"wait": 15}, {"edge"}),
        ({"shared": True}, {"fairness", "headers", "count"}),
        ({"charges_401": True}, {"unauthorized", "edge_quota"}),
        ({"limits_401": True}, {"unauthorized"}),
        ({"sliding": True}, {"edge_quota", "headers", "edge", "recovery"}),
        ({"broken_every": 7}, {"count", "edge_quota"}),
    ],
    ids=lambda value: ",".join(f"{name}={what}" for name, what in value.items()) if isinstance(value, dict) else "",
)
def test_each_broken_promise_is_found_by_the_check_that_is_about_it(faults, found):
    results = outcomes(MadeUpLimiter(**faults))
    assert found <= broken(results), results
    assert all("promised" in results[name].sentence for name in found)


def test_a_server_that_writes_its_date_once_a_second_keeps_its_promise():
    assert broken(outcomes(MadeUpLimiter(date_lag_s=0.9))) == set()


@pytest.mark.parametrize(
    ("date_ages_s", "x_reset_off_s", "outcome"),
    [
        ((0.2, 1.0, 2.6), 0, CheckOutcome.HELD),
        ((0.0, 0.0, 0.0), 3, CheckOutcome.BROKEN),
        ((0.2, 1.0, 2.6), 5, CheckOutcome.BROKEN),
        ((0.2, 1.0, 2.6), -3, CheckOutcome.BROKEN),
    ],
)
def test_a_busy_server_with_an_old_date_does_not_contradict_itself(date_ages_s, x_reset_off_s, outcome):
    def reply(number, age_s):
        at_s = 20.3 + number
        headers = {
            "ratelimit": f'"default";r={19 - number};t={-int(-(60 - at_s) // 1)}',
            "x-ratelimit-limit": "20",
            "x-ratelimit-remaining": f"{19 - number}",
            "x-ratelimit-reset": f"{T0_S + 60 + x_reset_off_s:.0f}",
            "date": formatdate(T0_S + at_s - age_s, usegmt=True),
        }
        return Reply(200, headers, at_s, at_s)

    replies = [reply(number, age_s) for number, age_s in enumerate(date_ages_s)]
    assert check_headers(replies, LimiterRules(20)).outcome is outcome


def test_a_limiter_that_tells_nothing_is_checked_by_what_it_does():
    results = outcomes(MadeUpLimiter(dialects=()))
    assert broken(results) == {"retry_after"}
    skipped = {name for name, result in results.items() if result.outcome is CheckOutcome.SKIPPED}
    assert skipped == {"headers", "edge", "calendar", "recovery"}
    assert results["count"].outcome is results["unauthorized"].outcome is CheckOutcome.HELD


def test_a_target_without_a_limiter_breaks_its_promise():
    results = outcomes(MadeUpLimiter(quota=10**6, told_quota=10**6))
    assert {"count", "edge_quota", "headers"} <= broken(results)
    assert "30 were let through and 0 got 429" in results["count"].observed


def test_one_key_alone_cannot_tell_about_fairness():
    results = outcomes(MadeUpLimiter(), keys=1)
    assert results["fairness"].outcome is CheckOutcome.SKIPPED
    assert "target.keys" in results["fairness"].sentence


def test_a_tolerance_takes_counts_that_are_a_little_off_and_tells_them():
    results = outcomes(MadeUpLimiter(quota=21), tolerance=0.05)
    assert results["count"].outcome is CheckOutcome.HELD
    assert "21 were let through" in results["count"].observed


def test_a_target_that_does_not_answer_is_an_error():
    async def ask(key, good):
        return Reply(0, {}, 0.0, 0.0)

    trial = RateLimiterTest(ask, 1, LimiterRules(20), MadeUpLimiter().pace(), lambda _text: None)
    with pytest.raises(TransportError, match="does not answer"):
        asyncio.run(trial.run())


@pytest.mark.parametrize("quota", [3, 50])
def test_our_own_service_keeps_every_promise(quota):
    """Over sockets; its clock goes on when the test sleeps."""
    with running(rate_limit=quota) as bench:
        keys = [Keys(bench.service.api_key, bench.service.secret_key)]

        async def run():
            began_s = bench.clock.now_ms() / 1000

            def now():
                return bench.clock.now_ms() / 1000 - began_s

            async def sleep(seconds):
                bench.clock.advance(max(0.0, seconds))

            pool = HttpPool(bench.service.base_url, connections=8)
            desk = LimiterClient(pool, keys, now)

            async def ask(key, good):
                reply = await desk.ask(key, good)
                # The server's own Date is the machine's time, and the service's clock is another one here.
                return replace(reply, headers={name: it for name, it in reply.headers.items() if name != "date"})

            try:
                pace = TimeSource(now, lambda: bench.clock.now_ms() / 1000, sleep)
                return await RateLimiterTest(ask, 1, LimiterRules(quota), pace, lambda _text: None).run()
            finally:
                await pool.close()

        results = {result.name: result for result in asyncio.run(run())}
    assert broken(results) == set(), results
    assert {name for name, result in results.items() if result.outcome is CheckOutcome.SKIPPED} == {
        "fairness",
        "calendar",
    }


def test_a_key_pair_is_made_wrong_without_changing_the_key():
    sent = []

    class Pool:
        async def request(self, method, target, *, headers):
            sent.append(headers)
            raise TransportError("refused")

    desk = LimiterClient(Pool(), [Keys("mk_a", Secret("msk_a"))], lambda: 1.0)
    assert asyncio.run(desk.ask(0, False)) == Reply(0, {}, 1.0, 1.0)
    assert sent[0]["x-api-key"] == "mk_a"
    assert sent[0]["x-secret-key"] != "msk_a"
