"""HTTP/1.1 for a fleet: a pool of kept-alive connections on one asyncio loop, parsed by httptools.

The bodies are bytes; what they mean is the caller's business. One request is in flight per connection. A request that
found its connection closed by the other side is *not* repeated here: whether the service saw it is not known, so the
device decides (the same :class:`~agent.errors.TransportError` that a real agent gets).

Source: RFC 9112 (HTTP/1.1), RFC 9110 section 9.2.2 (which requests may be repeated).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httptools

from agent.errors import ConfigurationError, TransportError, UnexpectedAnswer

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One answer.

    Attributes:
        status: the status code.
        headers: by lower-case name; of a repeated header the last value.
        body: as it came; requests ask for ``identity``, so it is not compressed.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpPool:
    """Kept-alive connections to one origin.

    Args:
        base_url: ``http://host:port`` or ``https://...``, with an optional path in front of every request's path.
        headers: sent with every request, such as the two keys.
        connections: how many may be open at once; further requests wait their turn.
        timeout_s: for one request as a whole, beside the wait that the caller names.

    Raises:
        ConfigurationError: ``base_url`` is not such an address.
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str], *, connections: int = 64, timeout_s: float = 10.0
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
            raise ConfigurationError([f"base_url {base_url!r}: write it as http://host:port"], "fleet")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        fixed = {"host": parts.netloc, "accept-encoding": "identity", "user-agent": "fleet-simulator", **headers}
        self._fixed = _header_lines(fixed)
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(connections)
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()

    async def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> HttpAnswer:
        """Send one request and return its answer.

        Args:
            method: ``GET``, ``POST`` ...
            target: path and query below the base address, already percent-encoded.
            body: JSON text; None sends none.
            headers: beside the pool's own.
            wait_s: how long the service was asked to hold the answer; added to the time limit.

        Raises:
            TransportError: no answer: refused, closed, timed out.
            UnexpectedAnswer: what came is not HTTP, or too large.
        """
        head = [f"{method} {self._prefix}{target} HTTP/1.1\r\n".encode("ascii"), self._fixed]
        if headers:
            head.append(_header_lines(headers))
        if body is not None:
            head.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
        message = b"".join([*head, b"\r\n", body or b""])
        async with self._free:
            try:
                async with asyncio.timeout(self._timeout_s + wait_s):
                    return await self._exchange(message)
            except TimeoutError:
                raise TransportError(f"{method} {target}: no answer within {self._timeout_s + wait_s:g} s") from None
            except OSError as error:
                raise TransportError(f"{method} {target}: {error.strerror or error}") from None

    async def _exchange(self, message: bytes) -> HttpAnswer:
        connection = await self._connection()
        try:
            answer = await connection.exchange(message)
        except BaseException:
            # Also when the caller was cancelled: an answer may still come, and it would be the next request's.
            connection.abort()
            raise
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.abort()
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: _Connection(self._open), self._host, self._port, ssl=self._tls)
        return made

    async def close(self) -> None:
        """Close every connection."""
        self._idle.clear()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # the transports report their end on the loop's next turn


class _Connection(asyncio.Protocol):
    """One connection: a request out, its answer in."""

    def __init__(self, register: set[_Connection]) -> None:
        self._register = register
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size_bytes = 0
        self._whole = False
        self.reusable = False

    async def exchange(self, message: bytes) -> HttpAnswer:
        """Send a request's bytes and wait for its answer."""
        if self._transport is None or self._transport.is_closing():
            raise TransportError("the connection was closed before the request was sent")
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._body, self._size_bytes, self._whole, self.reusable = {}, [], 0, False, False
        self._transport.write(message)
        return await self._answer

    def abort(self) -> None:
        """Close without ceremony."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection stands."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows asyncio's own promise for mypy
        self._transport = transport
        self._register.add(self)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came."""
        if self._parser is None or self._answer is None or self._answer.done():
            self.abort()  # bytes that belong to no request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(UnexpectedAnswer(f"the answer is not HTTP/1.1: {error}"))

    def eof_received(self) -> bool:
        """asyncio: the other side is done; an answer without a length ends here (RFC 9112 section 6.3)."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        self._register.discard(self)
        self.reusable = False
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._parser is not None and self._whole is False and self._headers and not framed and exc is None:
            self.on_message_complete()
            return
        reason = f"the connection was lost: {exc}" if exc else "the service closed the connection without an answer"
        self._fail(TransportError(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        """httptools: a part of the body."""
        self._size_bytes += len(data)
        if self._size_bytes > ANSWER_BYTES_MAX:
            self._fail(UnexpectedAnswer(f"the answer is larger than {ANSWER_BYTES_MAX} bytes"))
            return
        self._body.append(data)

    def on_message_complete(self) -> None:
        """httptools: the answer is whole."""
        parser, answer = self._parser, self._answer
        if parser is None or answer is None or answer.done():
            return
        status = parser.get_status_code()
        if 100 <= status < 200 and status != 101:  # noqa: PLR2004 - an interim answer: the real one follows
            self._headers = {}
            return
        self._whole = True
        self.reusable = parser.should_keep_alive() and self._transport is not None
        answer.set_result(HttpAnswer(status, self._headers, b"".join(self._body)))

    def _fail(self, error: Exception) -> None:
        self.reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


def _header_lines(headers: Mapping[str, str]) -> bytes:
    for name, value in headers.items():
        if any(character in name + value for character in "\r\n\0"):
            raise ConfigurationError([f"header {name}: a line break or NUL is not allowed in it"], "fleet")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
