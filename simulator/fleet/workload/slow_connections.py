"""The slow connections of a slow loris: opened at the fault's begin, a byte now and then, closed at its end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from typing import Final

from simulator.fleet.engine.http.origin import Origin
from simulator.fleet.engine.mqtt.engine import BrokerAddress
from simulator.watched import start_task

_HTTP_HEAD: Final = b"POST /sensor-data HTTP/1.1\r\nhost: %s\r\nx-slow: "
# CONNECT of MQTT 5 (section 3.1) whose client id is so long that its end never comes: what follows are its letters.
_CLIENT_ID_BYTES: Final = 60_000
_REST: Final = b"\x00\x04MQTT\x05\x02\x00\x3c\x00" + _CLIENT_ID_BYTES.to_bytes(2, "big")
_FILLER: Final = b"a"


@dataclass(frozen=True, slots=True)
class SlowTarget:
    """The address of slow connections, and the beginning of a request that never ends.

    Attributes:
        tls: None for connections in the clear.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    beginning: bytes


def over_http(origin: Origin) -> SlowTarget:
    """The head of a request that goes on and on."""
    return SlowTarget(origin.host, origin.port, origin.tls, _HTTP_HEAD % origin.authority.encode("ascii"))


def over_mqtt(broker: BrokerAddress) -> SlowTarget:
    """A CONNECT that goes on and on, so that a broker holds a client that it does not know yet."""
    left, length = len(_REST) + _CLIENT_ID_BYTES, b""
    while left:  # section 1.5.5: seven bits a byte, and whether there are more
        left, bits = left >> 7, left & 0x7F
        length += bytes((bits | (0x80 if left else 0),))
    return SlowTarget(broker.host, broker.port, broker.tls, b"\x10" + length + _REST)


class SlowConnections:
    """Holds slow connections to one target.

    Args:
        target: where to.
        connections: how many.
        every_s: between two bytes of one connection.

    Attributes:
        opened: connections that were made, again after the server had closed one, too.
        closed: of those, how many the server closed.
    """

    def __init__(self, target: SlowTarget, connections: int, every_s: float) -> None:
        self._target = target
        self._every_s = every_s
        self._count = connections
        self._tasks: list[asyncio.Task[None]] = []
        self.opened = 0
        self.closed = 0

    def begin(self) -> None:
        """Open them all; nothing happens when they are."""
        if self._tasks:
            return
        self._tasks = [start_task(self._hold(), f"slow-{number}") for number in range(self._count)]

    async def end(self) -> None:
        """Close all slow connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _hold(self) -> None:
        """One connection; a new one when the server has had enough of it."""
        target = self._target
        while True:
            try:
                _, writer = await asyncio.open_connection(target.host, target.port, ssl=target.tls)
            except OSError:
                await asyncio.sleep(self._every_s)
                continue
            self.opened += 1
            try:
                writer.write(target.beginning)
                while True:
                    await writer.drain()
                    await asyncio.sleep(self._every_s)
                    writer.write(_FILLER)
            except OSError:
                self.closed += 1
            finally:
                writer.close()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await asyncio.wait_for(writer.wait_closed(), 1.0)
