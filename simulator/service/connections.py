"""The open connections of the server, for faults that end one without an answer.

ASGI has no message for that, but asyncio: a protocol is told of its transport, and that can be closed or aborted.
So uvicorn is given, as its setting ``http``, its own protocol class with two methods of asyncio around it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any, Final

from starlette.types import Receive, Scope
from uvicorn.protocols.http.auto import AutoHTTPProtocol

_NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
_KERNEL_S: Final = 0.001
"""uvloop gives the kernel what is written at the end of a turn; a reset would overtake it."""


class Connections:
    """The transports that are open, by the address of the other end."""

    def __init__(self) -> None:
        self._open: dict[Any, asyncio.Transport] = {}

    def protocol(self) -> type[asyncio.Protocol]:
        """What uvicorn takes as ``http``."""
        opened = self._open

        class WatchedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
            def connection_made(self, transport: asyncio.Transport) -> None:
                self.peer = _address(transport)
                opened[self.peer] = transport
                super().connection_made(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                opened.pop(self.peer, None)
                super().connection_lost(exc)

        return WatchedProtocol

    async def end(self, scope: Scope, *, reset: bool) -> None:
        """End the connection of a request after what is written.

        Args:
            scope: of the request.
            reset: with a TCP RST instead of a FIN: the socket's linger time is 0 when it is closed.

        Raises:
            RuntimeError: the service does not run in its own server.
        """
        transport = self._open.get(tuple(scope.get("client") or ()))
        if transport is None:
            raise RuntimeError("this fault is about a connection: run the service in its own server")
        if reset:
            await asyncio.sleep(_KERNEL_S)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            transport.abort()
        else:
            transport.close()


async def until_gone(receive: Receive) -> None:
    """Until the server has noticed that the connection has ended: before that it would answer for the application."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _address(transport: asyncio.Transport) -> tuple[Any, ...]:
    return tuple(transport.get_extra_info("peername") or ())[:2]
