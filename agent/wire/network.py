"""Sockets for httpx whose every wait ends with the time budget of the exchange.

Apart from :mod:`agent.wire.connection`, since httpcore is imported with the first transport only.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Any, Final

import httpcore
import httpx

from agent.wire.time_budget import current

_PIECE_BYTES: Final = 16 * 1024


def open_transport(trust: ssl.SSLContext | None, limits: httpx.Limits) -> httpx.HTTPTransport:
    """An httpx transport that keeps to :class:`~agent.wire.time_budget.TimeBudget`.

    Args:
        trust: the authorities for ``https://``; None where only ``http://`` is asked.
        limits: how many connections, and how long idle ones are kept.
    """
    transport = httpx.HTTPTransport(verify=False if trust is None else trust, trust_env=False, limits=limits)
    # httpx has no argument for it; httpcore has, so the pool is made as httpx makes it and put in its place.
    transport._pool.close()  # noqa: SLF001
    transport._pool = httpcore.ConnectionPool(  # noqa: SLF001
        ssl_context=trust,
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        keepalive_expiry=limits.keepalive_expiry,
        network_backend=_Backend(),
    )
    return transport


class _Backend(httpcore.NetworkBackend):
    """Makes connections; all addresses of a host share the time."""

    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            # Bytes, here and below: for a str Python loads its codec of international names, 0.3 MB, though httpx has
            # written every name in ASCII already.
            addresses = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
        except OSError as exc:
            raise httpcore.ConnectError(str(exc)) from exc
        fault: Exception = httpcore.ConnectError(f"{host} has no address")
        for *_, place in addresses:
            scope = f"%{place[3]}" if len(place) > 3 and place[3] else ""  # noqa: PLR2004 - IPv6, link-local
            try:
                limit_s = _left(timeout, httpcore.ConnectTimeout)
                address: Any = f"{place[0]}{scope}".encode("ascii")  # create_connection takes both
                stream = self._inner.connect_tcp(address, port, limit_s, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                fault = exc
            else:
                return _Stream(stream)
        raise fault


class _Stream(httpcore.NetworkStream):
    """One connection."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _left(timeout, httpcore.ReadTimeout))
        budget = current()
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
    budget = current()
    if budget is None:
        return timeout
    left_s = budget.left_s
    if left_s <= 0:
        raise kind("the exchange took too long")
    return left_s if timeout is None else min(timeout, left_s)
