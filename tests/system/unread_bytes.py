"""Bytes of a TCP connection of this machine that its other end has not read yet, as the kernel counts them."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_ANY_STATE, _ANY_COOKIE = 0xFFFFFFFF, b"\xff" * 8
_HEAD = struct.Struct("=IHHII")
_QUEUES_AT = _HEAD.size + 4 + 48 + 4
"""After the header: family, state, timer and retransmits, the socket's addresses, and when its timer ends."""


def unread_bytes(near: tuple[str, int], far: tuple[str, int]) -> int:
    """Count what ``near`` has written to ``far``, and the process there has not read.

    Args:
        near, far: IPv4 address and port of the two ends, both on this machine.

    Returns:
        The bytes; 0 as well where the connection is gone, and where the kernel has no such diagnosis.

    Source: sock_diag(7).
    """
    # What waits to be sent stands at the near end, what waits to be read at the far one.
    return _queues(near, far)[1] + _queues(far, near)[0]


def _queues(end: tuple[str, int], other: tuple[str, int]) -> tuple[int, int]:
    """Bytes that wait at one end: to be read, and to be sent or acknowledged."""
    addresses = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host, _ in (end, other))
    asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    asked += struct.pack("!HH", end[1], other[1]) + addresses + struct.pack("=I", 0) + _ANY_COOKIE
    with suppress(OSError, AttributeError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(_HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _REQUEST, 0, 0) + asked)
        answer = kernel.recv(4096)
        if _HEAD.unpack_from(answer)[1] == _BY_FAMILY:
            return struct.unpack_from("=II", answer, _QUEUES_AT)
    return 0, 0
