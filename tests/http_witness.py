"""What stands between a program and a service in tests, and writes down each request that passes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

_PER_HOP = frozenset({"connection", "host", "keep-alive", "transfer-encoding", "content-length", "content-encoding"})


class Witness:
    """Forwards requests to a service, answers held polls and all, but no streams.

    Attributes:
        url: where to send requests instead.
        seen: (method, path) of each request, in order.
    """

    def __init__(self, service_url: str) -> None:
        self.seen: list[tuple[str, str]] = []
        self.client = httpx.Client(base_url=service_url, timeout=60.0)
        witness = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                witness.pass_on(self)

            def do_POST(self) -> None:
                witness.pass_on(self)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="witness")
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def paths(self, method: str) -> list[str]:
        """Of the requests with this method, in order."""
        return [path for each, path in list(self.seen) if each == method]

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        """One request and its answer."""
        self.seen.append((request.command, request.path.partition("?")[0]))
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _PER_HOP}
        answer = self.client.request(request.command, request.path, content=body, headers=headers)
        request.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in _PER_HOP:
                request.send_header(name, value)
        if answer.status_code != httpx.codes.NOT_MODIFIED:
            request.send_header("Content-Length", str(len(answer.content)))
        request.end_headers()
        request.wfile.write(answer.content)

    def close(self) -> None:
        """End; who uses it has ended before."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.client.close()


@contextlib.contextmanager
def witness(service_url: str) -> Iterator[Witness]:
    """A witness for the length of the block."""
    made = Witness(service_url)
    try:
        yield made
    finally:
        made.close()
