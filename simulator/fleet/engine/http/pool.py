"""Connections that share a queue: those of one device, or those of all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, cast

from simulator.fleet.engine.http.connection import Connection, Shared
from simulator.fleet.engine.ports import Caller
from simulator.fleet.engine.wheel import Timer
from simulator.fleet.outcomes import OutcomeClass

_NOTHING_SENT: Final = None


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

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send a request now, or in its turn."""
        now_s = monotonic()
        if self._idle:
            self._idle.popitem()[0].start(device, message, caller, now_s + timeout_s, now_s)
            return
        waiting = _Waiting(self._shared, device, message, caller, now_s)
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
            caller = cast("Caller", waiting.caller)  # _next leaves out those without one
            connection.start(waiting.device, waiting.message, caller, waiting.deadline_s, monotonic())

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

    def forget(self, caller: Caller) -> None:
        """Drop what one caller waits for, without a call; a connection that carries it is reset."""
        for waiting in self._waiting or ():
            if waiting.caller is caller:
                waiting.caller = None
        for connection in [connection for connection in self._open if connection.caller is caller]:
            connection.forget()

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
        while self._waiting and self._waiting[0].caller is None:
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
            if waiting.caller is not None and not self._shared.is_cut(waiting.device, waiting.asked_s):
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

    __slots__ = ("_shared", "asked_s", "caller", "deadline_s", "device", "message")

    def __init__(self, shared: Shared, device: int, message: bytes, caller: Caller, asked_s: float) -> None:
        super().__init__()
        self._shared = shared
        self.device = device
        self.message = message
        self.caller: Caller | None = caller
        self.asked_s = asked_s
        self.deadline_s = 0.0

    def fire(self) -> None:
        """The wheel: no connection in time."""
        self.fail(OutcomeClass.TIMEOUT, "no connection was free in time")

    def fail(self, outcome: OutcomeClass, reason: str) -> None:
        """Call the caller with a failure, once."""
        caller, self.caller = self.caller, None
        self.message = b""
        if caller is not None and not self._shared.is_cut(self.device, self.asked_s):
            caller.failed(outcome, reason, _NOTHING_SENT, monotonic())
