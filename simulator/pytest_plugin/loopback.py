"""The HTTP transport of the fixtures: the standard library's, which mocks of httpx do not replace."""

from __future__ import annotations

import contextlib
import http.client
from typing import Final

import httpx

_TIMEOUT_S: Final = 60.0
_NOT_SENT: Final = frozenset({"transfer-encoding"})


class LoopbackTransport(httpx.BaseTransport):
    """Requests to the service of a test, a connection for each.

    respx and pytest-httpx replace httpx's own transport, and what a test mocks is another service: the requests of
    the fixtures have to reach theirs.
    """

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and read the whole answer.

        Raises:
            httpx.RequestError: there is no answer, or half of one.
        """
        body = request.read()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.raw}
        port = request.url.port or http.client.HTTP_PORT
        try:
            with contextlib.closing(http.client.HTTPConnection(request.url.host, port, timeout=_TIMEOUT_S)) as sent:
                sent.request(request.method, request.url.raw_path.decode("ascii"), body or None, headers)
                answer = sent.getresponse()
                content = answer.read()
        except TimeoutError as exc:
            raise httpx.ReadTimeout(str(exc), request=request) from exc
        except (OSError, http.client.HTTPException) as exc:
            raise httpx.ReadError(f"{type(exc).__name__}: {exc}", request=request) from exc
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _NOT_SENT]
        return httpx.Response(answer.status, headers=kept, stream=httpx.ByteStream(content), request=request)
