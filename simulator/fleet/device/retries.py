"""Pauses between attempts, with the agent's own back-off: one policy for whatever the fleet sends again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
from agent.retry import Backoff
from simulator.fleet.device.answers import is_refused
from simulator.fleet.outcomes import Attempt

_IGNORED_LIMIT_S: Final = 2.0
_LOCKED_OUT: Final = Backoff(base_s=60.0, cap_s=900.0)


class Retries:
    """The attempts of one request, or of a channel that goes on after each error.

    Args:
        backoff: the pace of attempts.
        fraction: random numbers in [0, 1).
        ignores_limit: after 429 go on in a second on average, whatever ``Retry-After`` says.

    Attributes:
        attempt: what the next attempt of a single request is: the first one, or what the service may have of those
            before it.
        failures: how many attempts failed since the last success.
    """

    __slots__ = ("_fraction", "_ignores_limit", "_locked_out", "_usual", "attempt", "failures")

    def __init__(self, backoff: Backoff, fraction: Callable[[], float], *, ignores_limit: bool = False) -> None:
        self.attempt = Attempt.FIRST
        self.failures = 0
        self._usual = backoff
        self._locked_out = _LOCKED_OUT
        self._fraction = fraction
        self._ignores_limit = ignores_limit

    def failed(self, error: ServiceError, *, left: bool = True) -> float:
        """Count a failed attempt; how long to wait before the next, seconds.

        Args:
            error: how it ended. A refusal that does not end soon, such as 401, makes the pause a long one.
            left: the request went out.
        """
        self.failures += 1
        if left:
            self.attempt = self.attempt.again(refused=is_refused(error))
        if self._ignores_limit and isinstance(error, RateLimited):
            return _IGNORED_LIMIT_S * self._fraction()
        retry_after_s = error.retry_after_s if isinstance(error, ErrorAnswer) else None
        if isinstance(error, Unauthorized | Forbidden | NotFound | LockedOut | SessionTakenOver):
            self._locked_out, wait_s = self._locked_out.failed(self._fraction(), retry_after_s)
            return max(wait_s, self._locked_out.base_s / 2)
        self._usual, wait_s = self._usual.failed(self._fraction(), retry_after_s)
        return wait_s

    def succeeded(self) -> None:
        """Start again with the shortest pause."""
        self.failures = 0
        self._usual = self._usual.succeeded()
        self._locked_out = self._locked_out.succeeded()
