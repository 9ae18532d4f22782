"""Pauses between attempts, with the core's back-off: of a device's channel, and of a single request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent.core.backoff import Backoff
from agent.errors import (
    ErrorAnswer,
    Forbidden,
    LockedOut,
    NotFound,
    RateLimited,
    ServiceError,
    SessionTakenOver,
    Unauthorized,
)
from simulator.fleet.device.answers import is_refused
from simulator.fleet.outcomes import Attempt

_DEFIANT_S: Final = 2.0
_LOCKED_OUT: Final = Backoff(base_s=60.0, cap_s=900.0)


class RetryPolicy:
    """The pauses of a channel that goes on after each error; a long one after refusals that do not end soon.

    Args:
        usual: the pace of retries.
        fraction: random numbers in [0, 1).
        defies_limit: after 429 go on in a second on average, whatever ``Retry-After`` says.
    """

    __slots__ = ("_defies_limit", "_fraction", "_has_failed", "_locked_out", "_usual")

    def __init__(self, usual: Backoff, fraction: Callable[[], float], *, defies_limit: bool = False) -> None:
        self._defies_limit = defies_limit
        self._usual = usual
        self._locked_out = _LOCKED_OUT
        self._fraction = fraction
        self._has_failed = False

    def failed(self, error: ServiceError) -> float:
        """How long to wait after this error, seconds."""
        self._has_failed = True
        if self._defies_limit and isinstance(error, RateLimited):
            return _DEFIANT_S * self._fraction()
        retry_after_s = error.retry_after_s if isinstance(error, ErrorAnswer) else None
        if isinstance(error, Unauthorized | Forbidden | NotFound | LockedOut | SessionTakenOver):
            self._locked_out, wait_s = self._locked_out.failed(self._fraction(), retry_after_s)
            return max(wait_s, self._locked_out.base_s / 2)
        self._usual, wait_s = self._usual.failed(self._fraction(), retry_after_s)
        return wait_s

    def succeeded(self) -> None:
        """Start again with the shortest pause."""
        if self._has_failed:
            self._has_failed = False
            self._usual = self._usual.succeeded()
            self._locked_out = self._locked_out.succeeded()


class RequestRetries:
    """The attempts of one request until it is answered.

    Args:
        backoff: the pace of attempts.
        fraction: random numbers in [0, 1).

    Attributes:
        attempt: what the next attempt is: the first one, or what the service may have of those before it.
    """

    __slots__ = ("_backoff", "_fraction", "attempt")

    def __init__(self, backoff: Backoff, fraction: Callable[[], float]) -> None:
        self._backoff = backoff
        self._fraction = fraction
        self.attempt = Attempt.FIRST

    @property
    def failures(self) -> int:
        """How many attempts failed."""
        return self._backoff.failures

    def failed(self, retry_after_s: float | None = None, *, refused: bool = False, left: bool = True) -> float:
        """Count a failed attempt.

        Args:
            retry_after_s: how long the service wants to be left alone, where it said so.
            refused: the service surely did not take the request.
            left: the request went out.

        Returns:
            How long to wait before the next attempt, seconds.
        """
        if left:
            self.attempt = self.attempt.again(refused=refused)
        self._backoff, wait_s = self._backoff.failed(self._fraction(), retry_after_s)
        return wait_s

    def failed_with(self, error: ServiceError) -> float:
        """Count an attempt that was sent and ended in this error; how long to wait, seconds."""
        retry_after_s = error.retry_after_s if isinstance(error, RateLimited) else None
        return self.failed(retry_after_s, refused=is_refused(error))
