"""A TCP connection to a name with several addresses, some of which may be dead: RFC 8305, "Happy Eyeballs"."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import socket
import time
from collections.abc import Iterable
from typing import Any, Final

APART_S: Final = 0.25
"""An address has so long to answer before the next one is tried beside it (RFC 8305, section 5)."""

Found = tuple[int, int, int, str, Any]
"""An address as :func:`socket.getaddrinfo` gives it: family, type, protocol, canonical name, address."""


def in_turns(found: Iterable[Found]) -> list[Found]:
    """The addresses with the families in turns, each in the system's order (RFC 8305, section 4)."""
    by_family: dict[int, list[Found]] = {}
    for each in found:
        by_family.setdefault(each[0], []).append(each)
    return [each for turn in itertools.zip_longest(*by_family.values()) for each in turn if each is not None]


def connect(host: str | bytes, port: int, timeout_s: float | None) -> socket.socket:
    """Connect to the address that answers first. The socket's own timeout is then ``timeout_s``.

    Raises:
        OSError: the name has no address, or none of them answered; the error of the one that was tried first.
        TimeoutError: none answered in time.
    """
    waiting = in_turns(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    fault: OSError | None = None
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        while waiting or selector.get_map():
            wait_s = None if deadline_s is None else deadline_s - time.monotonic()
            if wait_s is not None and wait_s <= 0:
                raise fault or TimeoutError("timed out")
            if waiting:
                try:
                    _begin(selector, stack, waiting.pop(0))
                except OSError as error:
                    fault = fault or error
                    continue
                if waiting:
                    wait_s = APART_S if wait_s is None else min(APART_S, wait_s)
            for key, _ in selector.select(wait_s):
                sock: socket.socket = key.fileobj  # type: ignore[assignment]  # nothing else is registered
                selector.unregister(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code == 0:
                    made = sock.dup()  # the stack closes all that were tried
                    made.settimeout(timeout_s)
                    return made
                fault = fault or OSError(code, os.strerror(code))
    raise fault or OSError(f"{host!r} has no address")


def _begin(selector: selectors.BaseSelector, stack: contextlib.ExitStack, found: Found) -> None:
    family, kind, protocol, _, address = found
    sock = stack.enter_context(socket.socket(family, kind, protocol))
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        sock.connect(address)
    selector.register(sock, selectors.EVENT_WRITE)
