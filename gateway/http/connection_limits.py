"""Limits of a connection to an HTTP server: size of headers and bodies in time, idle time, number of connections."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final

_RESERVED_FILES: Final = 128
_WITHOUT_LIMIT: Final = 1_000_000


def most_connections() -> int:
    """As many connections as this process may open files, less some for everything else."""
    if sys.platform == "win32":
        return _WITHOUT_LIMIT
    import resource  # not on Windows, where the local service runs as well

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _WITHOUT_LIMIT
    return max(files - _RESERVED_FILES, files // 2)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one HTTP connection: sizes of its requests, and time limits.

    Attributes:
        head_bytes: request line and headers; also all trailers and chunk extensions of a body.
        headers: how many of them.
        head_s: from the first byte of a request to the end of its headers, seconds.
        body_s: how long a body may stand still, seconds: it brings ``body_bytes`` in each such period. An answer is
            read no slower.
        body_bytes: see there.
        linger_s: after a refusal what still comes is read and thrown away for so long, seconds, so that the answer is
            not lost with it (RFC 9112, section 9.6).
        connections: open ones; each further one is answered 503 and closed.
    """

    head_bytes: int = 64 * 1024
    headers: int = 100
    head_s: float = 10.0
    body_s: float = 30.0
    body_bytes: int = 2048
    linger_s: float = 5.0
    connections: int = field(default_factory=most_connections)
