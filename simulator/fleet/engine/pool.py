"""The HTTP engine for coroutines: a request is awaited, and what goes wrong is the agent's own error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from agent.errors import ServiceError, TransportError, UnexpectedAnswer
from simulator.fleet.engine.addresses import RequestHead, header_lines, read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.http_answers import Headers, HttpAnswer
from simulator.fleet.outcomes import OutcomeClass


class NoAnswerInTime(TransportError):
    """No answer came within the time limit."""


class HttpPool:
    """Kept-alive connections to one origin.

    Args:
        base_url: ``http://host:port`` or ``https://...``, with an optional path in front of every request's path.
        connections: how many may be open at once; further requests wait their turn.
        timeout_s: for one request as a whole.
        ca_file: the authorities that alone are trusted there; None trusts the system's.

    Attributes:
        base_url: as it was given.

    Raises:
        ConfigurationError: ``base_url`` is not such an address.
    """

    def __init__(
        self,
        base_url: str,
        *,
        connections: int = 64,
        timeout_s: float = 10.0,
        ca_file: Path | None = None,
    ) -> None:
        self.base_url = base_url
        self._origin = read_origin(base_url, ca_file)
        self._head = RequestHead(self._origin, {})
        self._timeout_s = timeout_s
        self._connections = connections
        self._engine: Http1Engine | None = None

    async def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send one request and return its answer. See :meth:`send`."""
        return await self.send(method, target, body, headers or {}).answer

    def send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> AwaitedAnswer:
        """Send one request.

        Args:
            method: ``GET``, ``POST`` ...
            target: path and query below the base address, already percent-encoded.
            body: JSON text; None sends none.
            headers: such as the two keys.
        """
        header_lines(headers)
        message = self._head.message(method, target, headers, body)
        if self._engine is None:
            self._engine = Http1Engine(self._origin, pool=self._connections)
        awaited = AwaitedAnswer(f"{method} {target}", self._timeout_s)
        self._engine.send(0, message, awaited, self._timeout_s)
        return awaited

    async def close(self) -> None:
        """Close every connection of the pool."""
        if self._engine is not None:
            await self._engine.close()


class AwaitedAnswer:
    """The engine's caller on one side, a future on the other.

    Attributes:
        answer: what comes. Raises TransportError: no answer (refused, closed, timed out); UnexpectedAnswer: what came
            is not HTTP, or too large.
        sent_s: when its bytes left, on the monotonic clock, once that has ended; None: nothing went out.
    """

    def __init__(self, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self.sent_s: float | None = None
        self.answer: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()

    @property
    def is_wanted(self) -> bool:
        """Until it is answered or cancelled."""
        return not self.answer.done()

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, _now_s: float) -> None:
        """The engine: the answer."""
        self.sent_s = sent_s
        self.answer.set_result(HttpAnswer(status, headers, body))

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, _now_s: float) -> None:
        """The engine: no answer."""
        self.sent_s = sent_s
        error: ServiceError
        if outcome is OutcomeClass.UNEXPECTED:
            error = UnexpectedAnswer(reason)
        elif outcome is OutcomeClass.TIMEOUT:
            error = NoAnswerInTime(f"{self._name}: no answer within {self._timeout_s:g} s")
        else:
            error = TransportError(f"{self._name}: {reason}")
        self.answer.set_exception(error)
