"""The connection that an answer goes out on, for what is beyond ASGI: closing and resetting."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Final

from starlette.types import Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

RAW_SEND: Final = "service.raw_send"
"""In a request's scope: uvicorn's own ``send``, put there by the first layer that hands on another one."""
_TURN_S: Final = 0.001
_UNREAD_S: Final = 5.0
"""How long a caller may take to read what came before the end of a connection."""
_NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


def cycle_of(scope: Scope, send: Send) -> RequestResponseCycle | None:
    """Uvicorn's own state of an answer; None where the service does not run in uvicorn."""
    owner = getattr(scope.get(RAW_SEND, send), "__self__", None)
    return owner if isinstance(owner, RequestResponseCycle) else None


def connection_of(scope: Scope, send: Send) -> RequestResponseCycle:
    """As :func:`cycle_of`, for what cannot do without a connection.

    Raises:
        RuntimeError: the service does not run in its own server.
    """
    cycle = cycle_of(scope, send)
    if cycle is None:
        raise RuntimeError("this fault is about a connection: run the service in its own server")
    return cycle


def close(cycle: RequestResponseCycle) -> None:
    """End the connection after what is written; nothing more of this answer is sent."""
    cycle.transport.close()
    _leave(cycle)
    asyncio.get_running_loop().call_later(_UNREAD_S, cycle.transport.abort)


def reset(cycle: RequestResponseCycle) -> None:
    """End the connection with a TCP RST, after the kernel has what is written."""
    _leave(cycle)
    # uvloop gives the kernel what is written at the end of a turn.
    asyncio.get_running_loop().call_later(_TURN_S, _reset_now, cycle)


def _reset_now(cycle: RequestResponseCycle) -> None:
    connection = cycle.transport.get_extra_info("socket")
    if connection is not None and not cycle.transport.is_closing():
        # RFC 9293 calls it ABORT; systems do it for a close with a linger time of 0.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    cycle.transport.abort()


def _leave(cycle: RequestResponseCycle) -> None:
    """Treat the caller as gone, as uvicorn does: what the service still sends is discarded."""
    cycle.disconnected = True
    cycle.message_event.set()
