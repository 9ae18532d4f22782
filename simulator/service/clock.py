"""The service's one clock: quota windows, expiry and presence all read it, so that one setting moves them together."""

from __future__ import annotations

import time
from typing import Protocol


class ServiceClock(Protocol):
    """Where the service gets the time from."""

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands until somebody moves it."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Move forward."""
        if seconds < 0:
            raise ValueError("a clock that stands is moved forward only: give seconds >= 0")
        self._now_ms += round(seconds * 1000)
