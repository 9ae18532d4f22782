"""How long a channel waits after an error: the core's back-off, and a long one for refusals that do not mend soon."""

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
    TakenOver,
    Unauthorized,
)

_DEFIANT_S: Final = 2.0
_LOCKED_OUT: Final = Backoff(base_s=60.0, cap_s=900.0)


class RetryPolicy:
    """One channel's row of failures.

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
        if isinstance(error, Unauthorized | Forbidden | NotFound | LockedOut | TakenOver):
            self._locked_out, wait_s = self._locked_out.failed(self._fraction(), retry_after_s)
            return max(wait_s, self._locked_out.base_s / 2)
        self._usual, wait_s = self._usual.failed(self._fraction(), retry_after_s)
        return wait_s

    def succeeded(self) -> None:
        """The service is well."""
        if self._has_failed:
            self._has_failed = False
            self._usual = self._usual.succeeded()
            self._locked_out = self._locked_out.succeeded()
