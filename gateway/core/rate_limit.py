"""How much one device or address may ask of the gateway: so many requests a minute, and so many at the same time.

It protects the gateway from one that runs wild, not the service's quota: that is the engine's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

_WINDOW_S: Final = 60.0


class RateLimitByKey:
    """Counts for each key, such as a device id or an address; used on one event loop.

    It remembers only who asked in this minute.

    Args:
        per_minute: requests of one key in one minute; 0 counts nothing.
        at_once: requests of one key that may be under way, held polls included.
        monotonic: seconds on the monotonic clock.
    """

    def __init__(self, per_minute: int, at_once: int, monotonic: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._at_once = at_once
        self._monotonic = monotonic
        self._begins_s = monotonic()
        self._asked: Counter[str] = Counter()
        self._running: Counter[str] = Counter()

    def begin(self, key: str) -> float:
        """Count a request in.

        Returns:
            0 when it may be carried out; :meth:`end` must follow. Else the seconds until it makes sense to come again.
        """
        now_s = self._monotonic()
        if now_s - self._begins_s >= _WINDOW_S:
            self._begins_s = now_s
            self._asked.clear()
        if self._per_minute and self._asked[key] >= self._per_minute:
            return self._begins_s + _WINDOW_S - now_s
        self._asked[key] += 1
        if self._running[key] >= self._at_once:
            return 1.0
        self._running[key] += 1
        return 0.0

    def end(self, key: str) -> None:
        """A request that was let in has ended."""
        self._running[key] -= 1
        if self._running[key] <= 0:
            del self._running[key]
