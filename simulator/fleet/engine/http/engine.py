"""The HTTP engine: requests of any number of devices over kept-alive connections, on the running loop."""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

from simulator.fleet.engine.addresses import TargetAddress, explain, open_socket
from simulator.fleet.engine.http.connection import ANSWER_BYTES_MAX, Connection, ConnectionPool, Shared
from simulator.fleet.engine.http.origin import Origin
from simulator.fleet.engine.ports import Caller
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.watched import describe, start_task

CONNECT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How an engine connects.

    Attributes:
        origin: where to.
        per_device: every device has sockets of its own; else all share ``pool``.
        pool: how many connections all devices share.
        device_sockets: how many a device may have at once; it opens a second one only while the first is busy, which is
            what a poll that the service holds does.
        sources: addresses of this machine to connect from, each good for some 28,000 connections; empty lets the system
            choose. A device keeps its address.
        connect_timeout_s: after this an attempt to connect is given up, and made again while somebody waits.
        answer_bytes_max: a longer answer is ``UNEXPECTED``.
    """

    origin: Origin
    per_device: bool = False
    pool: int = 256
    device_sockets: int = 2
    sources: tuple[str, ...] = ()
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    answer_bytes_max: int = ANSWER_BYTES_MAX


class Http1Engine:
    """HTTP/1.1 on the running loop; an :class:`~simulator.fleet.engine.ports.HttpEngine`.

    Never repeated here: a request that found its connection closed by the other side ends as ``TRANSPORT``, with the
    time at which it was sent, since the service may have seen it (RFC 9110 section 9.2.2). The device decides.

    Args:
        options: how to connect.
        wheel: for time limits; one of its own by default.
    """

    def __init__(self, options: HttpOptions, wheel: Wheel | None = None) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._shared = Shared(wheel or Wheel(LoopClock(self._loop)), options.answer_bytes_max, self._loop.call_soon)
        self._pools: dict[int, ConnectionPool] = {}
        # One bound method for all pools, since there may be a pool for each device.
        self._connect = self._start_attempt
        self._everybody = None if options.per_device else ConnectionPool(self._shared, options.pool, self._connect)
        self._turns = itertools.count()
        self._attempts: set[asyncio.Task[None]] = set()
        self._address = TargetAddress(options.origin.host, options.origin.port, options.sources)
        self._is_closed = False

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send one whole request (head and body, ready for the wire); it waits its turn where no connection is free.

        Raises:
            RuntimeError: the engine is closed.
        """
        if self._is_closed:
            raise RuntimeError("the engine is closed")
        pool = self._everybody
        if pool is None:
            pool = self._pools.get(device)
            if pool is None:
                pool = ConnectionPool(self._shared, self._options.device_sockets, self._connect, device)
                self._pools[device] = pool
        pool.send(message, caller, timeout_s)

    def cut(self, device: int) -> None:
        """The device's power goes: its own sockets are reset; a shared connection lives on.

        Its callers do not want their answers any more, see :class:`~simulator.fleet.engine.ports.Caller`.
        """
        if (pool := self._pools.pop(device, None)) is not None:
            pool.cut()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(pool.open for pool in self._all_pools())

    async def close(self) -> None:
        """Close every connection; open requests end as ``TRANSPORT``."""
        self._is_closed = True
        self._address.close()
        for attempt in self._attempts:
            attempt.cancel()
        for pool in self._all_pools():
            pool.close()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        await asyncio.sleep(0)  # the transports report their end on the loop's next turn

    def _all_pools(self) -> list[ConnectionPool]:
        return list(self._pools.values()) if self._everybody is None else [self._everybody]

    def _start_attempt(self, pool: ConnectionPool) -> None:
        attempt = start_task(self._attempt(pool), "http-connect")
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    async def _attempt(self, pool: ConnectionPool) -> None:
        connection = Connection(self._shared, pool)  # joins its pool itself, when it stands
        reason = None
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                await self._connect_to(connection, pool.device)
        except TimeoutError:
            pass  # made again while somebody waits
        except ssl.SSLError as error:
            reason = f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
        except OSError as error:
            reason = explain(error)
        except Exception as error:
            pool.refused(describe(error))
            raise
        if not connection.was_made:
            pool.refused(reason)

    async def _connect_to(self, connection: Connection, device: int) -> None:
        origin, sources = self._options.origin, self._options.sources
        family, address = await self._address.get()
        turn = device if device >= 0 else next(self._turns)
        sock = open_socket(family, sources[turn % len(sources)] if sources else None)
        try:
            await self._reach(sock, address)
            name = origin.host if origin.tls else None
            await self._loop.create_connection(lambda: connection, sock=sock, ssl=origin.tls, server_hostname=name)
        except BaseException:
            sock.close()
            raise

    @staticmethod
    async def _reach(sock: socket.socket, address: Any) -> None:
        """Connect; within this machine that is done at once, without a turn of the loop."""
        if sock.connect_ex(address) == 0:
            return
        try:
            sock.getpeername()
        except OSError:  # not yet, or refused
            try:
                await asyncio.get_running_loop().sock_connect(sock, address)
            except OSError as error:
                if error.errno != errno.EISCONN:  # it stood before it was asked again
                    raise
