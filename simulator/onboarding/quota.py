"""One quota for all requests of a run: each waits while the service asks for it, and none goes beyond what is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.wire.rate_limit import RateLimit

RETRY_AFTER_DEFAULT_S: Final = 5.0
"""The wait after a 429 that names none: twelve tries see the next minute of a quota that is counted per minute."""
_SHORTEST_S: Final = 0.1
_WINDOW_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock and sleep of a run, and how long a step may wait for the quota.

    Attributes:
        clock: monotonic seconds.
        sleep: waits that many seconds.
        max_wait_s: how long one step may wait for the quota in all.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    max_wait_s: float = 120.0


class KeyQuota:
    """What is left of one key's quota, by its answers. Not thread-safe; ``now`` is on one monotonic clock.

    Attributes:
        refusals: how many 429s came.
    """

    __slots__ = ("_left", "_left_until_s", "_until_s", "refusals")

    def __init__(self) -> None:
        self._until_s = float("-inf")
        self._left: int | None = None
        self._left_until_s = float("-inf")
        self.refusals = 0

    @property
    def left(self) -> int | None:
        """Requests that are left in this window; None when no answer has said it."""
        return self._left

    def wait_s(self, now: float) -> float:
        """How long to wait before the next request; 0 or less when it may go."""
        if self._left is not None and now >= self._left_until_s:
            self._left = None  # a new window; the next answer says what is left of it
        if self._left is not None and self._left < 1:
            return max(self._until_s, self._left_until_s) - now
        return self._until_s - now

    def take(self) -> None:
        """Count a request that goes out."""
        if self._left is not None:
            self._left -= 1

    def observe(self, limit: RateLimit | None, now: float) -> None:
        """Take in what an answer says is left. Requests in flight are counted already, so only less is believed."""
        if limit is None or limit.remaining is None:
            return
        ends_s = now + (_WINDOW_S if limit.reset_s is None else limit.reset_s)
        is_same = self._left is not None and now < self._left_until_s
        self._left = min(self._left or 0, limit.remaining) if is_same else limit.remaining
        self._left_until_s = min(self._left_until_s, ends_s) if is_same else ends_s

    def refused(self, retry_after_s: float | None, now: float) -> float:
        """Take in a 429: no request with this key goes out before its wait is over. Returns the wait."""
        wait_s = RETRY_AFTER_DEFAULT_S if retry_after_s is None else max(_SHORTEST_S, retry_after_s)
        self.refusals += 1
        self._until_s = max(self._until_s, now + wait_s)
        return wait_s


class QuotaGate:
    """Lets requests through while the key has quota. Thread-safe.

    Args:
        timing: clock and sleep.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._lock = threading.Lock()
        self._quota = KeyQuota()

    @property
    def refusals(self) -> int:
        """How many 429s came."""
        return self._quota.refusals

    @property
    def max_wait_s(self) -> float:
        """How long one step may wait in all."""
        return self._timing.max_wait_s

    def enter(self, waited_s: float = 0.0) -> float | None:
        """Wait until a request may be made.

        Args:
            waited_s: what the step has waited already.

        Returns:
            How long the step has waited now; None when it would be longer than ``max_wait_s``, and nothing was taken.
        """
        while True:
            with self._lock:
                wait_s = self._quota.wait_s(self._timing.clock())
                if wait_s <= 0:
                    self._quota.take()
                    return waited_s
            if waited_s + wait_s > self._timing.max_wait_s:
                return None
            self._timing.sleep(wait_s)
            waited_s += wait_s

    def observe(self, limit: RateLimit | None) -> None:
        """Take in what an answer says is left. Requests in flight are counted already, so only less is believed."""
        with self._lock:
            self._quota.observe(limit, self._timing.clock())

    def refused(self, retry_after_s: float | None) -> float:
        """Take in a 429: no request goes out before its wait is over. Returns the wait."""
        with self._lock:
            return self._quota.refused(retry_after_s, self._timing.clock())
