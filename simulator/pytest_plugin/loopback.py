"""The HTTP transport of the fixtures: the standard library's, which mocks of httpx do not replace."""

from __future__ import annotations

import http.client
import threading
from typing import Final

import httpx

_TIMEOUT_S: Final = 60.0
_NOT_SENT: Final = frozenset({b"transfer-encoding"})


class LoopbackTransport(httpx.BaseTransport):
    """Requests to the service of a test, one connection for each thread.

    respx and pytest-httpx replace httpx's own transport, and what a test mocks is another service: the requests of
    the fixtures have to reach theirs.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[http.client.HTTPConnection] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and read the whole answer.

        Raises:
            httpx.RequestError: there is no answer, or half of one.
        """
        body = request.read()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.raw}
        target = request.url.raw_path.decode("ascii")
        connection, is_used = self._connection(request.url)
        try:
            connection.request(request.method, target, body or None, headers)
            try:
                answer = connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionResetError):
                if not is_used or request.method != "GET":
                    raise
                # The service has closed a connection that was idle.
                connection.close()
                connection.request(request.method, target, None, headers)
                answer = connection.getresponse()
            content = answer.read()
        except TimeoutError as exc:
            connection.close()
            raise httpx.ReadTimeout(str(exc), request=request) from exc
        except (OSError, http.client.HTTPException) as exc:
            connection.close()
            raise httpx.ReadError(f"{type(exc).__name__}: {exc}", request=request) from exc
        kept = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.getheaders()]
        kept = [(name, value) for name, value in kept if name.lower() not in _NOT_SENT]
        return httpx.Response(answer.status, headers=kept, stream=httpx.ByteStream(content), request=request)

    def _connection(self, url: httpx.URL) -> tuple[http.client.HTTPConnection, bool]:
        place = (url.host, url.port or http.client.HTTP_PORT)
        held: dict[tuple[str, int], http.client.HTTPConnection] = self._local.__dict__.setdefault("held", {})
        if place in held:
            return held[place], held[place].sock is not None
        held[place] = connection = http.client.HTTPConnection(*place, timeout=_TIMEOUT_S)
        with self._lock:
            self._all.append(connection)
        return connection, False

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for connection in self._all:
                connection.close()
