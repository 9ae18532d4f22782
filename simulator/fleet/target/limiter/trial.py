"""The test of a limiter: three windows of one key, with others beside it.

1. From the edge of a window on, one key asks for more than its quota while the others stay below theirs.
2. The key goes on asking until the next edge lets it through: when exactly? Wrong key pairs come in between.
3. In the window that begins then it uses up its quota again, waits as it is asked to, and asks once more.

It works over any base address, with any quota that can be used up within a window, and knows the target only by its
answers. Nothing else may use the keys meanwhile.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from agent.errors import TransportError
from simulator.fleet.target.limiter import checks
from simulator.fleet.target.limiter.values import CheckResult, LimiterRules, Reply, skipped

Ask = Callable[[int, bool], Awaitable[Reply]]
"""(number of the key pair, whether its secret is right) -> the answer; status 0 when none came."""

_AT_ONCE: Final = 32
_WRONG: Final = 20
_QUIET_SHARE: Final = 10
_QUIET_LEAST: Final = 5
_OVER_LEAST: Final = 5
_PROBES_PER_WINDOW: Final = 600
_PROBE_AHEAD_S: Final = 2.0
_PATIENCE: Final = 1.2
_MARGIN_S: Final = 1.25


@dataclass(frozen=True, slots=True)
class TimeSource:
    """The clock of the test, so that tests need not wait.

    Attributes:
        now: monotonic seconds.
        wall: epoch seconds.
        sleep: waits that many seconds.
    """

    now: Callable[[], float]
    wall: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]


class RateLimiterTest:
    """One test of a server's rate limiter.

    Args:
        ask: makes a request.
        keys: how many key pairs there are.
        rules: the promise.
        pace: time.
        on_step: called with what is going on.
    """

    def __init__(
        self, ask: Ask, keys: int, rules: LimiterRules, pace: TimeSource, on_step: Callable[[str], None]
    ) -> None:
        self._ask = ask
        self._keys = keys
        self._rules = rules
        self._pace = pace
        self._on_step = on_step

    async def run(self) -> tuple[CheckResult, ...]:
        """Everything, in somewhat more than three windows.

        Raises:
            TransportError: the target does not answer.
        """
        rules, pace = self._rules, self._pace
        self._on_step("waiting for a window to begin")
        await self._align()
        began_s = pace.now()
        self._on_step("one key asks for more than its quota")
        storm, quiet = await self._burst_with_background_keys()
        first = self._count("count", f"exactly {rules.quota:,} in a window", storm, began_s)
        self._on_step("asking until the next window begins")
        wrong = [await self._ask(0, False)]  # also a key without quota: who it is comes before how much it may
        probes = await self._probe()
        opened = next((reply for reply in probes if reply.is_allowed), None)
        self._on_step("using up the quota of the new window")
        before, refusals, after = await self._send_wrong_keys()
        second_begin_s = pace.now()
        again = [before, after, *await self._burst(0, self._burst_size() - 2)]
        second_window = [*([opened] if opened else []), *again]
        second = self._count("edge_quota", "the whole quota again right after the edge", second_window, second_begin_s)
        self._on_step("waiting as Retry-After says")
        return (
            first,
            checks.check_headers(storm, rules),
            checks.check_retry_after(sorted([*storm, *probes], key=lambda reply: reply.sent_s), rules),
            checks.check_fairness(storm, quiet),
            checks.check_edge(probes, rules),
            checks.check_calendar(opened, rules),
            second,
            checks.check_unauthorized([*wrong, *refusals], before, after, second),
            await self._recover(again),
        )

    async def _align(self) -> None:
        """Wait until shortly after an edge of a window, as exactly as the target states its edges."""
        reply = await self._ask(0, True)
        if reply.status == 0:
            raise TransportError("the target does not answer")
        limit, window_s = reply.limit, self._rules.window_s
        if limit is not None and limit.reset_s is not None:
            rest_s = limit.reset_s
        elif reply.retry_after_s is not None:
            rest_s = float(reply.retry_after_s)
        else:
            at_s = reply.date_s if reply.date_s is not None else self._pace.wall()
            rest_s = window_s - at_s % window_s
        await self._pace.sleep(min(rest_s, window_s) + min(_MARGIN_S, window_s / 20))

    async def _burst_with_background_keys(self) -> tuple[list[Reply], dict[int, list[Reply]]]:
        count = min(self._rules.quota, max(_QUIET_LEAST, self._rules.quota // _QUIET_SHARE))
        others = range(1, self._keys)
        storm, *quiet = await asyncio.gather(
            self._burst(0, self._burst_size()), *(self._one_by_one(key, count) for key in others)
        )
        return storm, dict(zip(others, quiet, strict=True))

    def _burst_size(self) -> int:
        return max(math.ceil(self._rules.quota * self._rules.over), self._rules.quota + _OVER_LEAST)

    async def _burst(self, key: int, count: int) -> list[Reply]:
        """Many at once; in the order of their answers."""
        replies: list[Reply] = []
        left = iter(range(count))

        async def take() -> None:
            for _ in left:
                replies.append(await self._ask(key, True))

        await asyncio.gather(*(take() for _ in range(min(_AT_ONCE, count))))
        return replies

    async def _one_by_one(self, key: int, count: int) -> list[Reply]:
        return [await self._ask(key, True) for _ in range(count)]

    def _count(self, name: str, expected: str, replies: Sequence[Reply], began_s: float) -> CheckResult:
        took_s = self._pace.now() - began_s
        if took_s + _MARGIN_S > self._rules.window_s:
            why = f"{len(replies):,} requests took {took_s:.0f} s, so they did not fit into one window"
            return skipped(name, expected, why)
        return checks.check_count(name, expected, replies, self._rules)

    async def _probe(self) -> list[Reply]:
        """One request after the other until one is let through; quick ones around the edge that was named."""
        probes = [await self._ask(0, True)]
        pause_s = self._rules.window_s / _PROBES_PER_WINDOW
        give_up_s = self._pace.now() + self._rules.window_s * _PATIENCE
        while not probes[-1].is_allowed and self._pace.now() < give_up_s:
            ahead_s = (probes[-1].retry_after_s or 0) - _PROBE_AHEAD_S
            await self._pace.sleep(max(pause_s, ahead_s))
            probes.append(await self._ask(0, True))
        return probes

    async def _send_wrong_keys(self) -> tuple[Reply, list[Reply], Reply]:
        """Wrong key pairs between two right ones."""
        before = await self._ask(0, True)
        refusals = [await self._ask(0, False) for _ in range(min(_WRONG, self._rules.quota))]
        return before, refusals, await self._ask(0, True)

    async def _recover(self, replies: Sequence[Reply]) -> CheckResult:
        """Wait as long as the last 429 asked, and send one request."""
        waits = [reply for reply in replies if reply.is_limited and reply.retry_after_s is not None]
        if not waits:
            return skipped("recovery", "let through after the wait", "no 429 named a wait")
        last = max(waits, key=lambda reply: reply.received_s)
        wait_s = float(last.retry_after_s or 0)
        if wait_s > self._rules.window_s * 2:
            return skipped("recovery", "let through after the wait", f"it asked to wait {wait_s:g} s")
        await self._pace.sleep(wait_s - (self._pace.now() - last.received_s))
        return checks.check_recovery(await self._ask(0, True), wait_s, self._rules)
