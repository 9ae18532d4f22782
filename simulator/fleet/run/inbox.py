"""Messages out of a worker's pipe as far as they have come: one that is half sent blocks nobody."""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

_LENGTH: Final = struct.Struct("!i")
_LONG_LENGTH: Final = struct.Struct("!Q")
"""Behind a length of -1. Both as :class:`multiprocessing.connection.Connection` writes them."""
_READ_BYTES: Final = 1 << 20


class Inbox:
    """Reads one end of a duplex pipe without waiting; the other end writes with ``Connection.send``.

    Args:
        pipe: this end; still used for writing.
    """

    def __init__(self, pipe: Connection) -> None:
        self._socket = socket.socket(fileno=os.dup(pipe.fileno()))
        self._buffer = bytearray()

    def messages(self) -> Iterator[Any]:
        """Every message that has come whole.

        Raises:
            EOFError: the other end is closed, after the last whole message.
            OSError: the pipe is broken.
            Exception: whatever a message that is none makes of itself.
        """
        is_open = True
        while is_open:
            try:
                data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            is_open = bool(data)
            self._buffer += data
            while (body := self._take()) is not None:
                yield pickle.loads(body)  # noqa: S301 - from this program's own process
        if not is_open:
            raise EOFError

    def close(self) -> None:
        """Close this side of it; the pipe stays open."""
        self._socket.close()

    def _take(self) -> bytes | None:
        buffer, head = self._buffer, _LENGTH.size
        if len(buffer) < head:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if length == -1:
            head += _LONG_LENGTH.size
            if len(buffer) < head:
                return None
            (length,) = _LONG_LENGTH.unpack_from(buffer, _LENGTH.size)
        if length < 0:
            raise ValueError(f"a message of {length} bytes")
        if len(buffer) < head + length:
            return None
        body = bytes(buffer[head : head + length])
        del buffer[: head + length]
        return body
