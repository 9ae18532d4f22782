"""Ports of a test's own, for servers that a test starts, ends and starts again on the same port.

A port that the system gave out (port 0) and that was closed again is anybody's: another test process's server may get
it before ours is there, or while ours is away. A client that tries such a port again and again may even be given it as
its own end, and is then connected with itself. So these ports are none that the system gives out by itself, and a UDP
socket of the same number, open until this process ends, tells the other test processes of this machine of each.
"""

from __future__ import annotations

import os
import socket
from itertools import cycle, islice
from typing import Final

# Below everything that Linux (32768) and macOS (49152) give out.
_RANGE: Final = range(20_000, 30_000)


def free_port() -> int:
    """A loopback port that nobody uses, and that nobody else is given as long as this process lives."""
    begin = int.from_bytes(os.urandom(4), "big") % len(_RANGE)
    for port in islice(cycle(_RANGE), begin, begin + len(_RANGE)):
        if _is_free(port) and _reserve(port):
            return port
    raise RuntimeError(f"no port from {_RANGE.start} to {_RANGE.stop - 1} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _reserve(port: int) -> bool:
    token = socket.socket(type=socket.SOCK_DGRAM)
    try:
        token.bind(("127.0.0.1", port))
    except OSError:
        token.close()
        return False
    token.detach()  # open for as long as this process lives
    return True
