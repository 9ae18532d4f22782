"""What is left of one key's quota, by its answers."""

from __future__ import annotations

from typing import Final

from gateway.rate_limit import RateLimit

RETRY_AFTER_DEFAULT_S: Final = 5.0
"""The wait after a 429 that names none: twelve tries see the next minute of a quota that is counted per minute."""
_SHORTEST_S: Final = 0.1
_WINDOW_S: Final = 60.0


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
