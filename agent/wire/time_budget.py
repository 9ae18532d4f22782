"""How long one exchange may take as a whole, however it trickles.

A timeout of a socket begins anew with each byte. The budget of an exchange does not: :mod:`agent.wire.network` gives
each wait for the network what is left of the budget of its thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_BODY_MAX_S: Final = 60.0
_SLOWEST_BYTES_PER_S: Final = 2_048
"""A body that comes at this rate or faster is read on after the limit, up to :data:`_BODY_MAX_S`."""
HEAD_MAX_BYTES: Final = 192 * 1024
"""Before the head of an answer is complete: h11 allows 100 KiB for one, and there may be interim answers before it."""

_mine = threading.local()


class TimeBudget:
    """The time of one exchange; as a context manager it holds for the thread that is inside.

    Until the head of the answer is there, the exchange ends after ``timeout_s + wait_s``. The body has ``timeout_s``
    from then on, within the same bound; while it comes at 2 KiB/s or more on average, it may take up to 60 s.

    Args:
        monotonic: seconds on the monotonic clock.
        timeout_s: for everything but holding.
        wait_s: how long the service may hold the answer.

    Attributes:
        began_s: when it began, on that clock.
    """

    def __init__(self, monotonic: Callable[[], float], timeout_s: float, wait_s: float = 0.0) -> None:
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self.began_s = monotonic()
        self._end_s = self.began_s + timeout_s + wait_s
        self._body_end_s = self._end_s
        self._longest_s = max(_BODY_MAX_S, timeout_s)
        self._head_bytes: int | None = 0
        self._outer: TimeBudget | None = None

    def __enter__(self) -> Self:
        self._outer = current()
        _mine.budget = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        _mine.budget = self._outer
        if self._outer is not None:  # an exchange inside another one, such as renewing its token, has its own time
            self._outer.extend(self._monotonic() - self.began_s)

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 or less when the exchange has to end."""
        return self._end_s - self._monotonic()

    def head_is_here(self, now_s: float) -> None:
        """Note that the head of the answer is complete: from now on the time is the body's."""
        self._head_bytes = None
        self._end_s = min(self._end_s, now_s + self._timeout_s)
        self._body_end_s = self._end_s

    def extend(self, seconds: float) -> None:
        """Add time that was spent on this machine, and not on waiting for the service."""
        self._end_s += seconds

    def has_body(self, size_bytes: int) -> None:
        """Note how much of the body has come by now."""
        extra_s = min(size_bytes / _SLOWEST_BYTES_PER_S, self._longest_s - self._timeout_s)
        self._end_s = max(self._end_s, self._body_end_s + extra_s)

    def take_head(self, size_bytes: int) -> bool:
        """Count bytes that arrived; False when the head has become too long."""
        if self._head_bytes is None:
            return True
        self._head_bytes += size_bytes
        return self._head_bytes <= HEAD_MAX_BYTES


def current() -> TimeBudget | None:
    """The budget of this thread's exchange; None outside of one."""
    return getattr(_mine, "budget", None)
