"""A clock that is moved by hand: thirty days of a fleet take as long as their work."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class VirtualClock:
    """A :class:`~simulator.fleet.engine.timers.Clock` that jumps from one appointment to the next.

    Args:
        start_s: what it shows first.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._waiting: list[tuple[float, int, _Waiting]] = []
        self._serial = 0

    def time(self) -> float:
        """Now."""
        return self._now_s

    def call_at(self, when: float, callback: Callable[[], None], /) -> _Waiting:
        """Call once at ``when``; what is past is called next."""
        waiting = _Waiting(callback)
        self._serial += 1
        heapq.heappush(self._waiting, (when, self._serial, waiting))
        return waiting

    def run_until(self, until_s: float) -> None:
        """Let time pass: every call in its order, at its time."""
        while self._waiting and self._waiting[0][0] <= until_s:
            when, _, waiting = heapq.heappop(self._waiting)
            if waiting.callback is not None:
                self._now_s = max(self._now_s, when)
                waiting.callback()
        self._now_s = max(self._now_s, until_s)


class _Waiting:
    """A call that may yet be cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the call."""
        self.callback = None
