"""Requests of a limiter's test over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from agent.errors import ServiceError
from agent.wire import paths
from agent.wire.extensions import LIST_PARAMETERS, NONE
from simulator.fleet.engine.ports import Headers, HttpAnswer
from simulator.fleet.outcomes import OutcomeClass, class_of
from simulator.fleet.target.key_pool import headers_of
from simulator.fleet.target.limiter.values import UNAUTHORIZED, Reply
from simulator.keys import Keys

OPERATION: Final = "http.devices"
"""What is asked for: the list of devices."""

Measured = Callable[[OutcomeClass, float, float], None]
"""Outcome, sent, received."""


class Pool(Protocol):
    """The connections of the rate limiter's test."""

    async def request(self, method: str, target: str, *, headers: Mapping[str, str]) -> HttpAnswer:
        """Send one request and return its answer."""
        ...


class LimiterClient:
    """Asks with one of several key pairs, each request once.

    Args:
        pool: the connections.
        keys: the pairs.
        now: the test's clock.
        measured: called with each exchange.
        offers: the service's extensions.
    """

    def __init__(
        self,
        pool: Pool,
        keys: Sequence[Keys],
        now: Callable[[], float],
        measured: Measured | None = None,
        *,
        offers: frozenset[str] = NONE,
    ) -> None:
        self._pool = pool
        # A page of one device, where the service has pages: the cheapest thing that every service has.
        self._target = f"{paths.DEVICES}?limit=1" if LIST_PARAMETERS in offers else paths.DEVICES
        self._good = [headers_of(pair) for pair in keys]
        self._wrong = [{**headers, "x-secret-key": "msk_wrong_on_purpose"} for headers in self._good]
        self._now = now
        self._measured = measured

    async def ask(self, key: int, good: bool) -> Reply:
        """One request; status 0 when no answer came.

        Args:
            key: number of the pair.
            good: with its own secret; otherwise with a wrong one.
        """
        sent_s = self._now()
        try:
            answer = await self._pool.request("GET", self._target, headers=(self._good if good else self._wrong)[key])
        except ServiceError:
            self._measure(OutcomeClass.TRANSPORT, sent_s)
            return Reply(0, {}, sent_s, self._now())
        # A wrong key pair has to be refused: that is the good answer.
        is_due = not good and answer.status == UNAUTHORIZED
        self._measure(OutcomeClass.OK if is_due else class_of(answer.status), sent_s)
        return Reply(answer.status, _by_name(answer.headers), sent_s, self._now())

    def _measure(self, outcome: OutcomeClass, sent_s: float) -> None:
        if self._measured is not None:
            self._measured(outcome, sent_s, self._now())


def _by_name(headers: Headers) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
