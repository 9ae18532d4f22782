"""The quota of the one key that all devices share: commands go before results, results before readings, polls last.

What is left is read from the service's answers (``RateLimit``, ``X-RateLimit-*``, ``Retry-After``). Where it announces
nothing and nothing is configured, requests go out until it answers 429.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

import httpx

from agent.errors import RateLimited
from agent.wire.answers import read_retry_after
from gateway.rate_limit import read_rate_limit

WINDOW_S: Final = 60.0
_RETRY_S: Final = 10.0
_RETRY_MAX_S: Final = 900.0


class Kind(StrEnum):
    """What a request is for, the most urgent first."""

    COMMANDS = "commands"
    RESULTS = "results"
    READINGS = "readings"
    POLLS = "polls"
    """Lists of commands that are looked at again and again."""


# The part of a window that is kept for what is more urgent.
_RESERVED: Final[Mapping[Kind, float]] = {
    Kind.COMMANDS: 0.0,
    Kind.RESULTS: 0.05,
    Kind.READINGS: 0.2,
    Kind.POLLS: 0.5,
}


class Quota:
    """A token bucket that the service's answers correct. Used from one thread.

    Args:
        per_minute: the most requests of a minute; None takes what the service announces.
        monotonic: seconds on the monotonic clock.

    Attributes:
        requests: how many went out, by kind.
        refused: how often the service answered 429.
    """

    def __init__(self, per_minute: int | None, monotonic: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._monotonic = monotonic
        self._bucket = float(per_minute or 0)
        self._filled_s = monotonic()
        self._limit: int | None = None
        self._left: int | None = None
        self._resets_s = 0.0
        self._blocked_s = 0.0
        self._in_flight = 0
        self.requests: Counter[Kind] = Counter()
        self.refused = 0

    @property
    def limit(self) -> int | None:
        """Requests of one window, as far as it is known."""
        return self._limit if self._per_minute is None else self._per_minute

    @property
    def left(self) -> int | None:
        """Requests that are left in this window; None when nobody says so."""
        self._refresh()
        found = [int(self._bucket)] if self._per_minute is not None else []
        found += [] if self._left is None else [self._left]
        return min(found) if found else None

    def wait_s(self, kind: Kind) -> float:
        """Seconds until a request of this kind may go out; 0 when it may go now."""
        now_s = self._monotonic()
        if now_s < self._blocked_s:
            return self._blocked_s - now_s
        self._refresh()
        wait_s = 0.0
        if self._left is not None and self._left <= self._reserved(kind, self._limit):
            wait_s = max(1.0, self._resets_s - now_s)
        if self._per_minute is not None:
            missing = 1.0 + self._reserved(kind, self._per_minute) - self._bucket
            if missing > 0:
                wait_s = max(wait_s, missing * WINDOW_S / self._per_minute)
        return wait_s

    @contextmanager
    def request(self, kind: Kind) -> Iterator[None]:
        """Count one request, for as long as it is under way.

        Raises:
            RateLimited: it may not go out now; nothing is counted.
        """
        wait_s = self.wait_s(kind)
        if wait_s > 0:
            raise RateLimited(429, "quota", "the quota of the gateway's key is used up", retry_after_s=wait_s)
        self.requests[kind] += 1
        self._bucket -= 1
        if self._left is not None:
            self._left -= 1
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def answered(self, status: int, headers: httpx.Headers) -> None:
        """Learn from an answer, while its request is still counted as under way."""
        now_s = self._monotonic()
        found = read_rate_limit(headers)
        if found is not None:
            self._limit = found.limit or self._limit
            if found.remaining is not None:
                # Answers of requests that are under way do not count in it yet.
                self._left = found.remaining - (self._in_flight - 1)
                self._resets_s = now_s + (found.reset_s if found.reset_s is not None else WINDOW_S)
        if status == 429:
            self.refused += 1
            wait_s = min(read_retry_after(headers) or _RETRY_S, _RETRY_MAX_S)
            self._blocked_s = max(self._blocked_s, now_s + wait_s)

    def _refresh(self) -> None:
        now_s = self._monotonic()
        if self._per_minute is not None:
            gained = (now_s - self._filled_s) * self._per_minute / WINDOW_S
            self._bucket = min(float(self._per_minute), self._bucket + gained)
        self._filled_s = now_s
        if self._left is not None and now_s >= self._resets_s:
            self._left = None  # a new window, of which the next answer speaks

    @staticmethod
    def _reserved(kind: Kind, limit: int | None) -> int:
        return int(_RESERVED[kind] * (limit or 0))
