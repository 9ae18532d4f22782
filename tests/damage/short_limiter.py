"""A server that keeps the limiter's promise in windows of two seconds, so that its test needs no minutes."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WINDOW_S = 2.0


@contextlib.contextmanager
def short_limiter(api_key: str, secret_key: str, quota: int) -> Iterator[str]:
    """The address of one that lets a key make so many requests in a window."""
    counts: Counter[int] = Counter()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with lock:
                now_s = time.time()
                window = math.floor(now_s / WINDOW_S)
                if (self.headers["x-api-key"], self.headers["x-secret-key"]) != (api_key, secret_key):
                    self._answer(401, {"error": "unauthorized", "message": "wrong keys"})
                    return
                counts[window] += 1
                wait_s = math.ceil((window + 1) * WINDOW_S - now_s)
                if counts[window] > quota:
                    self._answer(429, {"error": "rate_limited", "message": "later"}, wait_s)
                else:
                    self._answer(200, {"data": [], "next_cursor": None, "has_more": False})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.do_GET()

        def _answer(self, status: int, document: object, retry_after_s: int | None = None) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if retry_after_s is not None:
                self.send_header("retry-after", str(retry_after_s))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="short-limiter")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
