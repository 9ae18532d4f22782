"""One connection: a request out, its answer in; never two requests at a time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

import httptools

from simulator.fleet.engine.http.response_parser import END_OF_HEAD, AnswerReader, KnownHeads
from simulator.fleet.engine.ports import Caller, Headers
from simulator.fleet.engine.wheel import NEVER, Timer, Wheel
from simulator.fleet.outcomes import OutcomeClass

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_RESET: Final = struct.pack("ii", 1, 0)


class Shared:
    """What all connections of an engine share.

    Requests that are made in one turn of the loop leave together at its end: the service is woken up once for all of
    them instead of once for each, which is what sending to a service that waits costs most.

    Args:
        call_soon: the loop's.

    Attributes:
        wheel: time limits.
        answer_bytes_max: a longer answer is refused.
        readers: those that no connection needs now.
        heads: that were read before.
        cuts: device -> when its power went, for answers that nobody waits for any more.
    """

    __slots__ = ("_call_soon", "_leaving", "answer_bytes_max", "cuts", "heads", "readers", "wheel")

    def __init__(self, wheel: Wheel, answer_bytes_max: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.wheel = wheel
        self.answer_bytes_max = answer_bytes_max
        self.readers: list[AnswerReader] = []
        self.heads = KnownHeads()
        self.cuts: dict[int, float] = {}
        self._call_soon = call_soon
        self._leaving: list[Connection] = []

    def leave(self, connection: Connection) -> None:
        """Let the connection send its request at the end of this turn."""
        leaving = self._leaving
        if not leaving:
            self._call_soon(self._send_all)
        leaving.append(connection)

    def is_cut(self, device: int, since_s: float) -> bool:
        """Whether the device has lost its power since then."""
        return bool(self.cuts) and self.cuts.get(device, -1.0) >= since_s

    def _send_all(self) -> None:
        leaving, self._leaving = self._leaving, []
        for connection in leaving:
            connection.send()


class Pool(Protocol):
    """What a connection calls of the pool that it belongs to."""

    def connected(self, connection: Connection) -> None:
        """Note that the connection stands."""

    def freed(self, connection: Connection) -> None:
        """The connection has brought its answer and can take a request."""

    def lost(self, connection: Connection) -> None:
        """The connection is closed; called once."""


class Connection(asyncio.Protocol, Timer):
    """One connection, and the time limit of the request that is on it."""

    __slots__ = (
        "_begun_s",
        "_caller",
        "_device",
        "_pool",
        "_reader",
        "_received",
        "_sent_s",
        "_shared",
        "_transport",
        "_unsent",
    )

    def __init__(self, shared: Shared, pool: Pool) -> None:
        super().__init__()
        self._shared = shared
        self._pool: Pool | None = pool
        self._transport: asyncio.WriteTransport | None = None
        self._caller: Caller | None = None
        self._reader: AnswerReader | None = None
        self._device = -1
        self._received = 0
        self._unsent = b""
        self._begun_s = 0.0
        self._sent_s: float | None = None

    @property
    def caller(self) -> Caller | None:
        """The caller that waits for an answer on this connection."""
        return self._caller

    def start(self, device: int, message: bytes, caller: Caller, deadline_s: float, now_s: float) -> None:
        """Take a request, which leaves at the end of the loop's turn; the connection must be free."""
        self._caller = caller
        self._device = device
        self._unsent = message
        self._begun_s = now_s
        self._sent_s = None
        shared = self._shared
        shared.wheel.at(deadline_s, self)
        shared.leave(self)

    def send(self) -> None:
        """Send the request that was taken, unless it was given up since."""
        message, self._unsent = self._unsent, b""
        if not message:
            return
        shared = self._shared
        if shared.cuts and shared.is_cut(self._device, self._begun_s):
            self._caller = None
            shared.wheel.put_off(self)
            self._pool.freed(self)  # type: ignore[union-attr]  # as below
            return
        self._sent_s = monotonic()
        self._transport.write(message)  # type: ignore[union-attr]  # a connection that is lost has nothing to send

    def forget(self) -> None:
        """Nobody waits for the answer any more: reset, and no call."""
        self._caller = None
        if self._transport is not None and (sock := self._transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):  # it may have ended already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._end()

    def close(self) -> None:
        """End the connection; the waiting caller gets a failure."""
        self._fail(OutcomeClass.TRANSPORT, "the engine was closed")

    @property
    def was_made(self) -> bool:
        """Whether the connection was ever established."""
        return self._transport is not None or self._pool is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection stands, and carries the next request at once."""
        self._transport = transport  # type: ignore[assignment]  # asyncio's own promise
        self._pool.connected(self)  # type: ignore[union-attr]  # it leaves its pool only afterwards

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the answer; asyncio calls it."""
        reader, shared = self._reader, self._shared
        is_first = reader is None
        if reader is None:
            if self._caller is None or self._unsent:
                self._fail(OutcomeClass.TRANSPORT, "the service sent bytes that belong to no request")
                return
            head_end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
            head = shared.heads.get(data[:head_end])
            if head is not None and len(data) == head_end + head.body_bytes:
                self._answered(head.status, head.headers, data[head_end:], monotonic(), keeps_alive=True)
                return
            readers = shared.readers
            reader = readers.pop() if readers else AnswerReader()
        try:
            reader.feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not reader.is_whole:
                reason = "it switches to another protocol" if isinstance(error, httptools.HttpParserUpgrade) else error
                self._fail(OutcomeClass.UNEXPECTED, f"the answer is not HTTP/1.1: {reason}")
                return
            reader.has_more = True
        if reader.is_whole:
            if is_first:
                shared.heads.store(data, reader)
            self._answer(reader, monotonic())
            return
        self._reader = reader
        self._received += len(data)
        if self._received > shared.answer_bytes_max:
            self._too_large()

    def eof_received(self) -> bool:
        """asyncio: the other side is done; what it has sent until now was all."""
        if self._caller is None:
            self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        if self._caller is not None and exc is None and self._reader is not None and self._reader.end():
            self._answer(self._reader, monotonic())
        elif exc is None:
            self._fail(OutcomeClass.TRANSPORT, "the service closed the connection without an answer")
        else:
            self._fail(OutcomeClass.TRANSPORT, f"the connection was lost: {exc}")

    def fire(self) -> None:
        """The wheel: no answer in time."""
        self._fail(OutcomeClass.TIMEOUT, "no answer in time")

    def _answer(self, reader: AnswerReader, now_s: float) -> None:
        shared = self._shared
        status, headers, body = reader.status, reader.headers, reader.body
        if len(body) > shared.answer_bytes_max:
            self._too_large()
            return
        self._reader = None
        self._received = 0
        keeps_alive = reader.keeps_alive and not reader.has_more
        if keeps_alive:
            reader.clear()
            shared.readers.append(reader)
        self._answered(status, headers, body, now_s, keeps_alive=keeps_alive)

    def _answered(self, status: int, headers: Headers, body: bytes, now_s: float, *, keeps_alive: bool) -> None:
        """Hand an answer over, after the connection is free for the next request."""
        shared, caller, sent_s = self._shared, self._caller, self._sent_s
        self._caller = None
        self.due_s = NEVER  # put off: its place on the wheel is for the next request
        if shared.cuts and shared.is_cut(self._device, self._begun_s):
            caller = None
        # An answer that came before the request was out leaves the rest of it in the way of the next.
        if keeps_alive and not self._transport.get_write_buffer_size():  # type: ignore[union-attr]  # it stands
            self._pool.freed(self)  # type: ignore[union-attr]  # a lost connection keeps nothing alive
        else:
            self._end()
        if caller is not None:
            caller.answered(status, headers, body, sent_s, now_s)  # type: ignore[arg-type]  # an answer has a request

    def _too_large(self) -> None:
        self._fail(OutcomeClass.UNEXPECTED, f"the answer is larger than {self._shared.answer_bytes_max} bytes")

    def _fail(self, outcome: OutcomeClass, reason: str) -> None:
        now_s = monotonic()
        caller, self._caller = self._caller, None
        self._end()
        if caller is not None and not self._shared.is_cut(self._device, self._begun_s):
            caller.failed(outcome, reason, self._sent_s, now_s)

    def _end(self) -> None:
        """Close, and call the pool's :meth:`Pool.lost`, once."""
        self._reader = None
        self._unsent = b""
        self._shared.wheel.cancel(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.lost(self)
