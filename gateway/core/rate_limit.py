"""How much one device may ask of the gateway: so many requests a minute, and so many at the same time.

It protects the gateway from a device that runs wild, not the service's quota: that is the engine's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

_WINDOW_S: Final = 60.0


class DeviceRateLimit:
    """Counts for each device; used on one event loop. It remembers only who asked in this minute.

    Args:
        per_minute: requests of one device in one minute; 0 counts nothing.
        at_once: requests of one device that may be under way, held polls included.
        monotonic: seconds on the monotonic clock.
    """

    def __init__(self, per_minute: int, at_once: int, monotonic: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._at_once = at_once
        self._monotonic = monotonic
        self._begins_s = monotonic()
        self._asked: Counter[str] = Counter()
        self._running: Counter[str] = Counter()

    def begin(self, device_id: str) -> float:
        """Count a request in.

        Returns:
            0 when it may be carried out; :meth:`end` must follow. Else the seconds until it makes sense to come again.
        """
        now_s = self._monotonic()
        if now_s - self._begins_s >= _WINDOW_S:
            self._begins_s = now_s
            self._asked.clear()
        if self._per_minute and self._asked[device_id] >= self._per_minute:
            return self._begins_s + _WINDOW_S - now_s
        self._asked[device_id] += 1
        if self._running[device_id] >= self._at_once:
            return 1.0
        self._running[device_id] += 1
        return 0.0

    def end(self, device_id: str) -> None:
        """A request that was let in has ended."""
        self._running[device_id] -= 1
        if self._running[device_id] <= 0:
            del self._running[device_id]
