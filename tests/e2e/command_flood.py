"""A server whose list of commands is enormous; it runs in a process of its own (``python command_flood.py``).

Arguments: how many commands, the payload's ``command``, and the ``status`` of each, or nothing for none. With one it
announces ``command-status``. Prints its port, then serves until its standard input ends. ``GET /counts``
answers how many polls and results there were.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def main() -> None:
    """Serve."""
    count, command, status = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    told = {"status": status} if status else {}
    listed = [{"id": f"c{number}", "command_payload": {"command": command}, **told} for number in range(count)]
    body = json.dumps(listed, separators=(",", ":")).encode()
    del listed
    counts: Counter[str] = Counter()

    class Plain(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.partition("?")[0].endswith("/commands"):
                counts["polls"] += 1
                self._answer(200, body)
            elif status and self.path.startswith("/.well-known/"):
                self._answer(200, b'{"extensions":["command-status"]}')
            elif self.path == "/counts":
                self._answer(200, json.dumps(counts).encode())
            else:
                self._answer(404, b'{"error":"not_found"}')

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            counts["results"] += 1
            self._answer(201, b"{}")

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def _answer(self, code: int, content: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
