"""The HTTP engine: requests of any number of devices over kept-alive connections, on the running loop.

Callbacks and no task for a request; never two requests at a time on one connection; a quiet socket costs little.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections import deque
from time import monotonic
from typing import Final

import httptools

from simulator.fleet.engine.addresses import Origin, TargetAddress, explain
from simulator.fleet.engine.http_answers import END_OF_HEAD, AnswerReader, Caller, Headers, KnownHeads
from simulator.fleet.engine.timers import NEVER, LoopClock, Timer, Timers
from simulator.fleet.outcomes import OutcomeClass
from simulator.watched import describe, start_task

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""A longer answer is ``UNEXPECTED``."""
_RESET: Final = struct.pack("ii", 1, 0)
_CLOSED: Final = "the engine was closed"
_EVERYBODY: Final = -1
"""Whose connections they are that all devices share."""


class Http1Engine:
    """HTTP/1.1 on the running loop: a request goes out, and exactly one call comes back to its caller.

    Never repeated here: a request that found its connection closed by the other side ends as ``TRANSPORT``, with the
    time at which it was sent, since the service may have seen it (RFC 9110 section 9.2.2). The device decides.

    Requests that are made in one turn of the loop leave together at its end: the service is woken up once for all of
    them instead of once for each, which is what sending to a service that waits costs most.

    Args:
        origin: where to connect.
        timers: for time limits; its own by default.
        per_device: every device has sockets of its own; else all share ``pool``.
        pool: how many connections all devices share.
        device_sockets: how many a device may have at once; it opens a second one only while the first is busy, which is
            what a poll that the service holds does.
        sources: addresses of this machine to connect from, each good for some 28,000 connections; empty lets the system
            choose. A device keeps its address.
        connect_timeout_s: after this an attempt to connect is given up, and made again while somebody waits.

    Attributes:
        readers: those that no connection needs now.
        heads: of answers that were read before.
        is_closed: nothing can be sent any more.
    """

    def __init__(
        self,
        origin: Origin,
        timers: Timers | None = None,
        *,
        per_device: bool = False,
        pool: int = 256,
        device_sockets: int = 2,
        sources: tuple[str, ...] = (),
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.timers = timers or Timers(LoopClock(self._loop))
        self.readers: list[AnswerReader] = []
        self.heads = KnownHeads()
        self._device_sockets = device_sockets
        self._connect_timeout_s = connect_timeout_s
        self._per_device = per_device
        self._pools = {} if per_device else {_EVERYBODY: ConnectionPool(self, pool)}
        self._leaving: list[Connection] = []
        self._turns = itertools.count()
        self._attempts: set[asyncio.Task[None]] = set()
        self._address = TargetAddress(origin.host, origin.port, sources, origin.tls)
        self.is_closed = False

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send one whole request (head and body, ready for the wire); it waits its turn where no connection is free.

        Raises:
            RuntimeError: the engine is closed.
        """
        pool = self._pools.get(device if self._per_device else _EVERYBODY)
        if pool is None:
            pool = self._pools[device] = ConnectionPool(self, self._device_sockets, device)
        pool.send(message, caller, timeout_s)

    def cut(self, device: int) -> None:
        """The device's power goes: its own sockets are reset; a shared connection lives on.

        Its callers do not want their answers any more, see :class:`~simulator.fleet.engine.http_answers.Caller`.
        """
        if (pool := self._pools.pop(device, None)) is not None:
            pool.cut()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(len(pool.open) for pool in self._pools.values())

    async def close(self) -> None:
        """Close every connection; open requests end as ``TRANSPORT``."""
        self.is_closed = True
        self._address.close()
        for attempt in self._attempts:
            attempt.cancel()
        for pool in list(self._pools.values()):
            pool.close()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        await asyncio.sleep(0)  # the transports report their end on the loop's next turn

    def leave(self, connection: Connection) -> None:
        """Let the connection send its request at the end of this turn."""
        if not self._leaving:
            self._loop.call_soon(self._send_all)
        self._leaving.append(connection)

    def start_attempt(self, pool: ConnectionPool) -> None:
        """Connect; ends in the pool's ``connected`` or ``refused``."""
        attempt = start_task(self._attempt(pool), "http-connect")
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    def _send_all(self) -> None:
        leaving, self._leaving = self._leaving, []
        for connection in leaving:
            connection.send()

    async def _attempt(self, pool: ConnectionPool) -> None:
        connection = Connection(self, pool)  # joins its pool itself, when it stands
        reason = None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                turn = pool.device if self._per_device else next(self._turns)
                await self._address.connect(connection, turn)
        except TimeoutError:
            pass  # made again while somebody waits
        except OSError as error:
            reason = explain(error)
        except Exception as error:
            pool.refused(describe(error))
            raise
        if not connection.was_made:
            pool.refused(reason)


class Connection(asyncio.Protocol, Timer):
    """One connection, and the time limit of the request that is on it."""

    __slots__ = ("_caller", "_engine", "_pool", "_reader", "_received", "_sent_s", "_transport", "_unsent")

    def __init__(self, engine: Http1Engine, pool: ConnectionPool) -> None:
        super().__init__()
        self._engine = engine
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
        self._engine.timers.at(deadline_s, self)
        self._engine.leave(self)

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

    def fail(self, outcome: OutcomeClass, reason: str) -> None:
        """End the connection; the caller that waits is told why."""
        now_s = monotonic()
        caller, self._caller = self._caller, None
        self._end()
        if caller is not None and caller.is_wanted:
            caller.failed(outcome, reason, self._sent_s, now_s)

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
        reader, engine = self._reader, self._engine
        is_first = reader is None
        if reader is None:
            if self._caller is None or self._unsent:
                self.fail(OutcomeClass.TRANSPORT, "the service sent bytes that belong to no request")
                return
            head_end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
            head = engine.heads.get(data[:head_end])
            if head is not None and len(data) == head_end + head.body_bytes:
                self._answered(head.status, head.headers, data[head_end:], keeps_alive=True)
                return
            reader = engine.readers.pop() if engine.readers else AnswerReader()
        try:
            reader.feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not reader.is_whole:
                reason = "it switches to another protocol" if isinstance(error, httptools.HttpParserUpgrade) else error
                self.fail(OutcomeClass.UNEXPECTED, f"the answer is not HTTP/1.1: {reason}")
                return
            reader.has_more = True
        if reader.is_whole:
            if is_first:
                engine.heads.store(data, reader)
            self._answer(reader)
            return
        self._reader = reader
        self._received += len(data)
        if self._received > ANSWER_BYTES_MAX:
            self._too_large()

    def eof_received(self) -> bool:
        """asyncio: the other side is done; what it has sent until now was all."""
        if self._caller is None:
            self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        if self._caller is not None and exc is None and self._reader is not None and self._reader.end():
            self._answer(self._reader)
        elif exc is None:
            self.fail(OutcomeClass.TRANSPORT, "the service closed the connection without an answer")
        else:
            self.fail(OutcomeClass.TRANSPORT, f"the connection was lost: {exc}")

    def fire(self) -> None:
        """No answer came in time."""
        self.fail(OutcomeClass.TIMEOUT, "no answer in time")

    def _answer(self, reader: AnswerReader) -> None:
        status, headers, body = reader.status, reader.headers, reader.body
        if len(body) > ANSWER_BYTES_MAX:
            self._too_large()
            return
        self._reader = None
        self._received = 0
        keeps_alive = reader.keeps_alive and not reader.has_more
        if keeps_alive:
            reader.clear()
            self._engine.readers.append(reader)
        self._answered(status, headers, body, keeps_alive=keeps_alive)

    def _answered(self, status: int, headers: Headers, body: bytes, *, keeps_alive: bool) -> None:
        """Hand an answer over, after the connection is free for the next request."""
        caller, sent_s, now_s = self._caller, self._sent_s, monotonic()
        self._caller = None
        self.due_s = NEVER
        # An answer that came before the request was out leaves the rest of it in the way of the next.
        if keeps_alive and not self._transport.get_write_buffer_size():  # type: ignore[union-attr]  # it stands
            self._pool.freed(self)  # type: ignore[union-attr]  # a lost connection keeps nothing alive
        else:
            self._end()
        if caller is not None and caller.is_wanted:
            caller.answered(status, headers, body, sent_s, now_s)  # type: ignore[arg-type]  # an answer has a request

    def _too_large(self) -> None:
        self.fail(OutcomeClass.UNEXPECTED, f"the answer is larger than {ANSWER_BYTES_MAX} bytes")

    def _end(self) -> None:
        """Close, and leave the pool, once."""
        self._reader = None
        self._unsent = b""
        self.stop()
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
        engine: connects.
        bound: how many connections may be open or on their way.
        device: whose pool it is.

    Attributes:
        open: the connections that stand.
    """

    __slots__ = ("_bound", "_connecting", "_engine", "_idle", "_is_closed", "_waiting", "device", "open")

    def __init__(self, engine: Http1Engine, bound: int, device: int = _EVERYBODY) -> None:
        self.device = device
        self.open: set[Connection] = set()
        self._engine = engine
        self._bound = bound
        self._connecting = 0
        self._idle: dict[Connection, None] = {}
        self._waiting: deque[_Waiting] | None = None  # a device that never waits has none: it weighs more than the rest
        self._is_closed = False

    def send(self, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send a request now, or in its turn.

        Raises:
            RuntimeError: the engine is closed.
        """
        deadline_s = monotonic() + timeout_s
        if self._idle:
            self._idle.popitem()[0].start(message, caller, deadline_s)
            return
        if self._engine.is_closed:
            raise RuntimeError(_CLOSED)
        waiting = _Waiting(message, caller)
        self._engine.timers.at(deadline_s, waiting)
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(waiting)
        self._open_more()

    def freed(self, connection: Connection) -> None:
        """A connection has brought its answer: the next request goes out, or it rests."""
        waiting = self._next() if self._waiting else None
        if waiting is None:
            self._idle[connection] = None
        else:
            connection.start(waiting.message, waiting.caller, waiting.due_s)
            waiting.end()

    def lost(self, connection: Connection) -> None:
        """Drop a connection that is closed; requests that wait may need another."""
        self.open.discard(connection)
        self._idle.pop(connection, None)
        self._open_more()

    def connected(self, connection: Connection) -> None:
        """Note that a connection stands."""
        self._connecting -= 1
        if self._is_closed:
            connection.forget()
        else:
            self.open.add(connection)
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
        for waiting in self._waiting or ():
            waiting.end()
        for connection in list(self.open):
            connection.forget()

    def close(self) -> None:
        """End everything; who waits gets a failure."""
        self._is_closed = True
        for connection in list(self.open):
            connection.fail(OutcomeClass.TRANSPORT, _CLOSED)
        while (waiting := self._next()) is not None:
            waiting.fail(OutcomeClass.TRANSPORT, _CLOSED)

    def _open_more(self) -> None:
        waiting = self._waiting or ()
        while waiting and waiting[0].due_s == NEVER:
            self._waiting.popleft()  # type: ignore[union-attr]  # it is what is looked at
        wanted = min(len(waiting), self._bound - len(self.open))
        while self._connecting < wanted and not self._is_closed:
            self._connecting += 1
            self._engine.start_attempt(self)

    def _next(self) -> _Waiting | None:
        """The request that waits longest, of those that somebody still wants."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.due_s != NEVER and waiting.caller.is_wanted:
                return waiting
        return None


class _Waiting(Timer):
    """A request that waits for a connection; its time limit, as long as it does."""

    __slots__ = ("caller", "message")

    def __init__(self, message: bytes, caller: Caller) -> None:
        super().__init__()
        self.message = message
        self.caller = caller

    def fire(self) -> None:
        """No connection was free in time."""
        self.fail(OutcomeClass.TIMEOUT, "no connection was free in time")

    def end(self) -> None:
        """It waits no more."""
        self.stop()
        self.message = b""

    def fail(self, outcome: OutcomeClass, reason: str) -> None:
        """Tell the caller that it did not leave."""
        self.end()
        if self.caller.is_wanted:
            self.caller.failed(outcome, reason, None, monotonic())
