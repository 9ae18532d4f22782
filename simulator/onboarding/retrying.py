"""Requests beside the journeys: lists, products, removals. With the quota kept, and again when that can help."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from agent.core.backoff import Backoff
from agent.errors import Advice, RateLimited, ServiceError
from simulator.onboarding.quota import QuotaGate, Timing

Value = TypeVar("Value")

ATTEMPTS: Final = 5
_CAP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Retrier:
    """Makes requests until they are answered for good.

    Attributes:
        gate: the quota of these credentials.
        timing: clock and sleep.
        attempts: how often at most, 429 not counted.
        draw: a random number in [0, 1).
        base_s: the first wait after a failure is drawn from 0 to this.
    """

    gate: QuotaGate
    timing: Timing
    attempts: int = ATTEMPTS
    draw: Callable[[], float] = random.random
    base_s: float = 0.5

    def call(self, request: Callable[[], Value]) -> Value:
        """What ``request`` returns; it must be harmless to repeat.

        Raises:
            ServiceError: it was refused for good, the attempts are used up, or the quota's wait is too long.
        """
        backoff = Backoff(self.base_s, _CAP_S)
        while True:
            try:
                return self.call_once(request)
            except RateLimited:
                raise
            except ServiceError as error:
                if error.advice is not Advice.RETRY or backoff.failures + 1 >= self.attempts:
                    raise
                backoff, wait_s = backoff.failed(self.draw())
                self.timing.sleep(wait_s)

    def call_once(self, request: Callable[[], Value]) -> Value:
        """What ``request`` returns; it is only repeated after a 429, which is certain to have done nothing.

        Raises:
            ServiceError: whatever came instead, or the quota's wait is too long.
        """
        waited_s = 0.0
        limit: RateLimited | None = None
        while True:
            entered = self.gate.enter(waited_s)
            if entered is None:
                raise limit or RateLimited(429, "", "the quota is used up for longer than --max-wait-s")
            waited_s = entered
            try:
                return request()
            except RateLimited as refused:
                limit = refused
                self.gate.refused(refused.retry_after_s)
