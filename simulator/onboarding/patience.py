"""Requests that wait for the quota, and, where that is harmless, are sent again when their answer is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import random
from typing import Final, TypeVar

from agent.errors import Advice, RateLimited, ServiceError
from agent.health import Backoff

Value = TypeVar("Value")

_ATTEMPTS: Final = 5
_RETRY_AFTER_S: Final = 5.0
"""The wait after a 429 that names none."""
_FIRST_S, _CAP_S = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How a run waits.

    Attributes:
        max_wait_s: for one request, until the quota has room.
        sleep: waits that many seconds, or less when the run is to end.
        is_over: the run is to end: nothing is sent again.
    """

    max_wait_s: float = 120.0
    sleep: Callable[[float], object] = time.sleep
    is_over: Callable[[], bool] = lambda: False

    def call(self, request: Callable[[], Value]) -> Value:
        """What ``request`` returns; sent again only after a 429, which is certain to have done nothing.

        Raises:
            ServiceError: whatever came instead, or the quota's wait is too long.
        """
        left_s = self.max_wait_s
        while True:
            try:
                return request()
            except RateLimited as refused:
                wait_s = max(0.1, _RETRY_AFTER_S if refused.retry_after_s is None else refused.retry_after_s)
                if wait_s > left_s or self.is_over():
                    raise
            self.sleep(wait_s)
            left_s -= wait_s

    def repeat(self, request: Callable[[], Value]) -> Value:
        """As :meth:`call`, of a request that is harmless to repeat: up to five times while no clear answer comes.

        Raises:
            ServiceError: it was refused for good, or the attempts are used up.
        """
        backoff = Backoff(_FIRST_S, _CAP_S)
        while True:
            try:
                return self.call(request)
            except ServiceError as error:
                is_last = backoff.failures + 1 >= _ATTEMPTS or self.is_over()
                if isinstance(error, RateLimited) or error.advice is not Advice.RETRY or is_last:
                    raise
            backoff, wait_s = backoff.failed(random())  # noqa: S311 - spreads retries
            self.sleep(wait_s)
