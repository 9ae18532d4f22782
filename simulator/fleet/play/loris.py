"""The slow connections of a slow loris: opened at the fault's begin, a byte now and then, closed at its end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from simulator.fleet.engine.http.origin import Origin

_HEAD: Final = b"POST /sensor-data HTTP/1.1\r\nhost: %s\r\nx-slow: "
_FILLER: Final = b"a"


class SlowConnections:
    """Holds slow connections to one origin.

    Args:
        origin: where to.
        connections: how many.
        every_s: between two bytes of one connection.

    Attributes:
        opened: connections that were made, again after the server had closed one, too.
        closed: of those, how many the server closed.
    """

    def __init__(self, origin: Origin, connections: int, every_s: float) -> None:
        self._origin = origin
        self._every_s = every_s
        self._count = connections
        self._tasks: list[asyncio.Task[None]] = []
        self.opened = 0
        self.closed = 0

    def begin(self) -> None:
        """Open them all; nothing happens when they are."""
        if self._tasks:
            return
        self._tasks = [asyncio.create_task(self._hold(), name=f"slow-{number}") for number in range(self._count)]

    async def end(self) -> None:
        """Close them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _hold(self) -> None:
        """One connection; a new one when the server has had enough of it."""
        while True:
            try:
                _, writer = await asyncio.open_connection(self._origin.host, self._origin.port, ssl=self._origin.tls)
            except OSError:
                await asyncio.sleep(self._every_s)
                continue
            self.opened += 1
            try:
                writer.write(_HEAD % self._origin.authority.encode("ascii"))
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
