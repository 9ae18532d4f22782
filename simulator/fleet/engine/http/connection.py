"""Connections and their pools: a request out, its answer in; never two requests at a time on one connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

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
    """

    __slots__ = ("_call_soon", "_leaving", "answer_bytes_max", "heads", "readers", "wheel")

    def __init__(self, wheel: Wheel, answer_bytes_max: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.wheel = wheel
        self.answer_bytes_max = answer_bytes_max
        self.readers: list[AnswerReader] = []
        self.heads = KnownHeads()
        self._call_soon = call_soon
        self._leaving: list[Connection] = []

    def leave(self, connection: Connection) -> None:
        """Let the connection send its request at the end of this turn."""
        leaving = self._leaving
        if not leaving:
            self._call_soon(self._send_all)
        leaving.append(connection)

    def _send_all(self) -> None:
        leaving, self._leaving = self._leaving, []
        for connection in leaving:
            connection.send()


class Connection(asyncio.Protocol, Timer):
    """One connection, and the time limit of the request that is on it."""

    __slots__ = (
        "_caller",
        "_pool",
        "_reader",
        "_received",
        "_sent_s",
        "_shared",
        "_transport",
        "_unsent",
    )

    def __init__(self, shared: Shared, pool: ConnectionPool) -> None:
        super().__init__()
        self._shared = shared
        self._pool: ConnectionPool | None = pool
        self._transport: asyncio.WriteTransport | None = None
        self._caller: Caller | None = None
        self._reader: AnswerReader | None = None
        self._received = 0
        self._unsent = b""
        self._sent_s: float | None = None

    def start(self, message: bytes, caller: Caller, deadline_s: float) -> None:
        """Take a request, which leaves at the end of the loop's turn; the connection must be free."""
        self._caller = caller
        self._unsent = message
        self._sent_s = None
        shared = self._shared
        shared.wheel.at(deadline_s, self)
        shared.leave(self)

    def send(self) -> None:
        """Send the request that was taken, unless it was given up since."""
        message, self._unsent = self._unsent, b""
        if not message:
            return
        if not self._caller.is_wanted:  # type: ignore[union-attr]  # what is to be sent has a caller
            self._caller = None
            self.due_s = NEVER
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
        caller, sent_s = self._caller, self._sent_s
        self._caller = None
        self.due_s = NEVER  # put off: its place on the wheel is for the next request
        # An answer that came before the request was out leaves the rest of it in the way of the next.
        if keeps_alive and not self._transport.get_write_buffer_size():  # type: ignore[union-attr]  # it stands
            self._pool.freed(self)  # type: ignore[union-attr]  # a lost connection keeps nothing alive
        else:
            self._end()
        if caller is not None and caller.is_wanted:
            caller.answered(status, headers, body, sent_s, now_s)  # type: ignore[arg-type]  # an answer has a request

    def _too_large(self) -> None:
        self._fail(OutcomeClass.UNEXPECTED, f"the answer is larger than {self._shared.answer_bytes_max} bytes")

    def _fail(self, outcome: OutcomeClass, reason: str) -> None:
        now_s = monotonic()
        caller, self._caller = self._caller, None
        self._end()
        if caller is not None and caller.is_wanted:
            caller.failed(outcome, reason, self._sent_s, now_s)

    def _end(self) -> None:
        """Close, and call the pool's :meth:`ConnectionPool.lost`, once."""
        self._reader = None
        self._unsent = b""
        self._shared.wheel.cancel(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.lost(self)


class ConnectionPool:
    """A bounded pool of connections; requests wait in the order in which they came.

    The connection that was used last is used next, so that a pool which is larger than it need be stays small.

    Args:
        shared: the engine's.
        bound: how many connections may be open or on their way.
        connect: starts one; ends in :meth:`connected` or :meth:`refused`.
        device: whose pool it is; -1 is everybody's.
    """

    __slots__ = ("_bound", "_connect", "_connecting", "_idle", "_is_closed", "_open", "_shared", "_waiting", "device")

    def __init__(self, shared: Shared, bound: int, connect: Callable[[ConnectionPool], None], device: int = -1) -> None:
        self.device = device
        self._shared = shared
        self._bound = bound
        self._connect = connect
        self._connecting = 0
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        self._waiting: deque[_Waiting] | None = None
        self._is_closed = False

    def send(self, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send a request now, or in its turn."""
        now_s = monotonic()
        if self._idle:
            self._idle.popitem()[0].start(message, caller, now_s + timeout_s)
            return
        waiting = _Waiting(message, caller)
        self._shared.wheel.at(now_s + timeout_s, waiting)
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(waiting)
        self._open_more()

    def freed(self, connection: Connection) -> None:
        """A connection has brought its answer: the next request goes out, or it rests."""
        waiting = None if self._waiting is None else self._next()
        if waiting is None:
            self._idle[connection] = None
        else:
            connection.start(waiting.message, waiting.caller, waiting.deadline_s)

    def lost(self, connection: Connection) -> None:
        """Drop a connection that is closed; requests that wait may need another."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._open_more()

    def connected(self, connection: Connection) -> None:
        """Note that a connection stands."""
        self._connecting -= 1
        if self._is_closed:
            connection.forget()
        else:
            self._open.add(connection)
            self.freed(connection)

    def refused(self, reason: str | None) -> None:
        """A connection could not be made; that is the answer to the request that waited longest.

        Args:
            reason: for a person; None when the attempt was only given up, so that it is made again.
        """
        self._connecting -= 1
        waiting = None if reason is None else self._next()
        self._open_more()
        if waiting is not None:
            waiting.fail(OutcomeClass.TRANSPORT, reason or "")

    def cut(self) -> None:
        """End everything in this instant; no caller is called."""
        self._is_closed = True
        self._drop_waiting()
        for connection in list(self._open):
            connection.forget()

    def close(self) -> None:
        """End everything; waiting callers get a failure."""
        self._is_closed = True
        dropped = self._drop_waiting()
        for connection in list(self._open):
            connection.close()
        for waiting in dropped:
            waiting.fail(OutcomeClass.TRANSPORT, "the engine was closed")

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """Requests in the queue, with those that have timed out since the last one left it."""
        return len(self._waiting or ())

    def _open_more(self) -> None:
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()
        wanted = min(self.waiting, self._bound - len(self._open))
        while self._connecting < wanted and not self._is_closed:
            self._connecting += 1
            self._connect(self)

    def _next(self) -> _Waiting | None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not self._waiting:
                self._waiting = None
            waiting.deadline_s = waiting.due_s
            self._shared.wheel.cancel(waiting)
            if not waiting.is_over and waiting.caller.is_wanted:
                return waiting
        return None

    def _drop_waiting(self) -> list[_Waiting]:
        dropped = list(self._waiting or ())
        self._waiting = None
        for waiting in dropped:
            self._shared.wheel.cancel(waiting)
        return dropped


class _Waiting(Timer):
    """A request that waits for a connection, and its time limit."""

    __slots__ = ("caller", "deadline_s", "is_over", "message")

    def __init__(self, message: bytes, caller: Caller) -> None:
        super().__init__()
        self.message = message
        self.caller = caller
        self.deadline_s = 0.0
        self.is_over = False

    def fire(self) -> None:
        """The wheel: no connection in time."""
        self.fail(OutcomeClass.TIMEOUT, "no connection was free in time")

    def fail(self, outcome: OutcomeClass, reason: str) -> None:
        """Call the caller with a failure, once."""
        if self.is_over:
            return
        self.is_over = True
        self.message = b""
        if self.caller.is_wanted:
            self.caller.failed(outcome, reason, None, monotonic())
