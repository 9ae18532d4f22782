"""A transport for httpx that tries the addresses of a name in turns, so that a dead one costs a second at most."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

import httpcore
import httpx

from agent.wire.network import attempts


def open_transport(trust: ssl.SSLContext | None, limits: httpx.Limits) -> httpx.BaseTransport:
    """A transport for one client.

    Args:
        trust: the authorities for ``https://``; None where only ``http://`` is asked.
        limits: how many connections, and how long idle ones are kept.
    """
    return _Transport(
        httpcore.ConnectionPool(
            ssl_context=trust,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )
    )


class _Transport(httpx.BaseTransport):
    """httpx's own takes no network backend; this one has public parts of httpcore alone."""

    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        asked = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            answer = self._pool.handle_request(asked)
        except _FAULTS as error:
            _raise(error)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer.iter_stream()
        except _FAULTS as error:
            _raise(error)

    def close(self) -> None:
        self._answer.close()


class _Backend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        fault: Exception | None = None
        try:
            for address, limit_s in attempts(host, port, timeout):
                try:
                    return super().connect_tcp(address, port, limit_s, local_address, socket_options)
                except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                    fault = error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        raise fault or httpcore.ConnectError(f"{host} has no address")


_FAULTS: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


def _raise(error: Exception) -> NoReturn:
    """Raise httpx's exception of the same name, which is what callers of httpx know."""
    kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__, httpx.TransportError)
    raise kind(str(error)) from error
