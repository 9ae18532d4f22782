"""How long one exchange may take as a whole, and the sockets for httpx that keep to it.

A timeout of a socket begins anew with each byte, so an answer that trickles never ends. The budget of an exchange is
counted from its beginning: each wait for the network gets what is left of the budget of its thread.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self

import httpcore
import httpx
from httpcore._backends.sync import SyncStream  # its public backend only makes one by connecting itself

from agent.wire.connecting import connect

_BODY_MAX_S: Final = 60.0
_SLOWEST_BYTES_PER_S: Final = 2_048
"""A body that comes at this rate or faster is read on after the limit, up to :data:`_BODY_MAX_S`."""
HEAD_MAX_BYTES: Final = 192 * 1024
"""Before the head of an answer is complete: h11 allows 100 KiB for one, and there may be interim answers before it."""


class TimeBudget:
    """The time of one exchange; as a context manager it holds for the thread that is inside.

    Until the head of the answer is there, the exchange ends after ``timeout_s + wait_s``. The body has ``timeout_s``
    from then on, within the same bound; while it comes at 2 KiB/s or more on average, it may take up to 60 s.

    Args:
        monotonic: seconds on the monotonic clock.
        timeout_s: for everything but holding.
        wait_s: how long the service may hold the answer.

    Attributes:
        began_s: when it began, on that clock.
    """

    def __init__(self, monotonic: Callable[[], float], timeout_s: float, wait_s: float = 0.0) -> None:
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self.began_s = monotonic()
        self._end_s = self.began_s + timeout_s + wait_s
        self._body_end_s = self._end_s
        self._longest_s = max(_BODY_MAX_S, timeout_s)
        self._head_bytes: int | None = 0
        self._outer: TimeBudget | None = None

    def __enter__(self) -> Self:
        self._outer = this_thread.budget
        this_thread.budget = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        this_thread.budget = self._outer
        if self._outer is not None:  # an exchange inside another one, such as renewing its token, has its own time
            self._outer.extend(self._monotonic() - self.began_s)

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 or less when the exchange has to end."""
        return self._end_s - self._monotonic()

    def head_is_here(self, now_s: float) -> None:
        """Note that the head of the answer is complete: from now on the time is the body's."""
        self._head_bytes = None
        self._end_s = min(self._end_s, now_s + self._timeout_s)
        self._body_end_s = self._end_s

    def extend(self, seconds: float) -> None:
        """Add time that was spent on this machine, and not on waiting for the service."""
        self._end_s += seconds

    def has_body(self, size_bytes: int) -> None:
        """Note how much of the body has come by now."""
        extra_s = min(size_bytes / _SLOWEST_BYTES_PER_S, self._longest_s - self._timeout_s)
        self._end_s = max(self._end_s, self._body_end_s + extra_s)

    def take_head(self, size_bytes: int) -> bool:
        """Count bytes that arrived; False when the head has become too long."""
        if self._head_bytes is None:
            return True
        self._head_bytes += size_bytes
        return self._head_bytes <= HEAD_MAX_BYTES


class _ThisThread(threading.local):
    """What holds for the thread that asks.

    Attributes:
        budget: of its exchange; None outside of one.
    """

    budget: TimeBudget | None = None


this_thread: Final = _ThisThread()


_PIECE_BYTES: Final = 16 * 1024


def open_transport(trust: ssl.SSLContext | None, limits: httpx.Limits) -> httpx.HTTPTransport:
    """An httpx transport that keeps to :class:`~agent.wire.network.TimeBudget`.

    Args:
        trust: the authorities for ``https://``; None where only ``http://`` is asked.
        limits: how many connections, and how long idle ones are kept.
    """
    transport = httpx.HTTPTransport(verify=False if trust is None else trust, trust_env=False, limits=limits)
    # httpx has no argument for it; httpcore has, so the pool is made as httpx makes it and put in its place.
    transport._pool.close()
    transport._pool = httpcore.ConnectionPool(
        ssl_context=trust,
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        keepalive_expiry=limits.keepalive_expiry,
        network_backend=_Backend(),
    )
    return transport


class _Backend(httpcore.NetworkBackend):
    """Makes connections; all addresses of a host share the time."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        del local_address, socket_options  # httpx sets neither
        try:
            # Bytes: for a str Python loads its codec of international names, 0.3 MB, though httpx has written every
            # name in ASCII already.
            sock = connect(host.encode("ascii"), port, _left(timeout, httpcore.ConnectTimeout))
        except TimeoutError as exc:
            raise httpcore.ConnectTimeout(str(exc)) from exc
        except OSError as exc:
            raise httpcore.ConnectError(str(exc)) from exc
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Stream(SyncStream(sock))


class _Stream(httpcore.NetworkStream):
    """One connection."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _left(timeout, httpcore.ReadTimeout))
        budget = this_thread.budget
        if budget is not None and not budget.take_head(len(data)):
            raise httpcore.RemoteProtocolError("the head of its answer does not end")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for begin in range(0, len(buffer), _PIECE_BYTES):  # httpcore's own loop begins its time anew with each part
            self._inner.write(buffer[begin : begin + _PIECE_BYTES], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        limit_s = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, limit_s))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(timeout: float | None, kind: type[Exception]) -> float | None:
    """The time for one wait: its own, or what is left of the exchange's.

    Raises:
        Exception: of ``kind``, when nothing is left.
    """
    budget = this_thread.budget
    if budget is None:
        return timeout
    left_s = budget.left_s
    if left_s <= 0:
        raise kind("the exchange took too long")
    return left_s if timeout is None else min(timeout, left_s)
