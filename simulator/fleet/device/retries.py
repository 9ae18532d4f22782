"""Pauses between attempts, with the agent's own policy, and the random numbers of a device that they are drawn by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from agent.errors import RateLimited, ServiceError
from agent.health import Backoff, RetryPolicy
from simulator.fleet.device.answers import is_refused
from simulator.fleet.outcomes import Attempt

_IGNORED_LIMIT_S: Final = 2.0
_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_TWO_53: Final = 1 / (1 << 53)


class Retries(RetryPolicy):
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

    __slots__ = ("_ignores_limit", "attempt", "failures")

    def __init__(self, backoff: Backoff, fraction: Callable[[], float], *, ignores_limit: bool = False) -> None:
        super().__init__(fraction, base_s=backoff.base_s, cap_s=backoff.cap_s)
        self._ignores_limit = ignores_limit
        self.attempt = Attempt.FIRST
        self.failures = 0

    def failed(self, error: ServiceError, *, left: bool = True) -> float:  # type: ignore[override]  # there always is an error
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
        return super().failed(error)

    def succeeded(self) -> None:
        """Start again with the shortest pause."""
        self.failures = 0
        super().succeeded()


class HashedRandom:
    """Numbers in [0, 1), the same ones for the same seed and device. Called, it gives the next.

    A ``random.Random`` is 2.5 KB; this is one number: number ``n`` is a hash of seed, device and ``n``. For jitter, not
    for secrets.

    Source: G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64).

    Args:
        seed: the run's.
        device: index in the fleet.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int, device: int) -> None:
        digest = hashlib.blake2b(f"{seed}\x1f{device}\x1fchance".encode(), digest_size=8).digest()
        self._state = int.from_bytes(digest)

    def __call__(self) -> float:
        """The next number."""
        self._state = mixed = (self._state + _GOLDEN) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) * _TWO_53
