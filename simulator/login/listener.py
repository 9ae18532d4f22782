"""The loopback redirect (RFC 8252, section 7.3): one address on this machine that the browser comes back to, once."""

from __future__ import annotations

import html
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from agent.errors import ConfigurationError
from simulator.login.request import SignInFailed

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
_READ_S: Final = 10.0
_SHOW_S: Final = 60.0
_QUERY_MAX: Final = 8192
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Connection": "close",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
  body {{ font: 1.125rem/1.5 system-ui, sans-serif; display: grid; place-items: center; min-height: 90vh;
         margin: 1rem }}
  main {{ max-width: 32rem; padding: 2rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent);
         border-radius: 1rem; overflow-wrap: anywhere }}
  h1 {{ margin-top: 0; font-size: 1.5rem }}
</style>
<main><h1>{title}</h1><p>{text}</p></main>
</html>
"""


class Listener:
    """Waits on ``http://127.0.0.1:PORT/callback``. Only this machine can reach it.

    Args:
        port: one that is registered for the client; 0 takes any free one, for a service that takes any.

    Raises:
        ConfigurationError: the port cannot be had.
    """

    def __init__(self, port: int) -> None:
        try:
            self._server = _Server((HOST, port), _Browser)
        except OSError as error:
            fault = f"--redirect-port {port}: {error.strerror}; end what uses it, or choose another registered port"
            raise ConfigurationError([fault], "login") from None
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server.answer is None:
            self.show("Nothing was signed in", "The command that waited for this page has ended. Run it again.")
        if self._server.is_taken:
            self._server.shown.wait(_READ_S)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def redirect_uri(self) -> str:
        """What is registered for the client, to the letter."""
        return f"http://{HOST}:{self._server.server_address[1]}{PATH}"

    def wait(self, timeout_s: float) -> str:
        """The query that the browser came back with; it is kept waiting until :meth:`show`.

        Raises:
            SignInFailed: it did not come back in time.
        """
        try:
            return self._server.queries.get(timeout=timeout_s)
        except queue.Empty:
            raise SignInFailed(
                f"nobody signed in within {timeout_s:g} s: run the command again, with --timeout for more time, or "
                "with --paste when the browser is on another machine"
            ) from None

    def show(self, title: str, text: str) -> None:
        """What the waiting browser shows."""
        self._server.answer = (title, text)
        self._server.answered.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a connection that a browser opened ahead must not hold up the end

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.queries: queue.Queue[str] = queue.Queue()
        self.answered = threading.Event()
        self.answer: tuple[str, str] | None = None
        self.shown = threading.Event()
        self._taken = threading.Lock()

    @property
    def is_taken(self) -> bool:
        """Whether a browser came back and waits for its page."""
        return self._taken.locked()

    def take(self, query: str) -> bool:
        """Whether this is the first answer; the others change nothing."""
        first = self._taken.acquire(blocking=False)
        if first:
            self.queries.put(query)
        return first


class _Browser(BaseHTTPRequestHandler):
    server: _Server
    timeout = _READ_S  # a browser opens connections ahead and says nothing on them

    def do_GET(self) -> None:
        """The redirect, or something else that a browser asks for."""
        parts = urlsplit(self.path)
        host = self.headers.get("Host", "")
        # Another name that leads here would be another site's page (DNS rebinding).
        if host != f"{HOST}:{self.server.server_address[1]}":
            self._say(400, "This is not the address", "Follow the link that the command printed.")
        elif parts.path != PATH or len(parts.query) > _QUERY_MAX:
            self._say(404, "There is nothing here", "Follow the link that the command printed.")
        elif not self.server.take(parts.query):
            self._say(409, "This page has been used", "Look into the terminal: it says how the sign-in ended.")
        else:
            self._show_end()

    def _show_end(self) -> None:
        try:
            if self.server.answered.wait(_SHOW_S) and self.server.answer is not None:
                self._say(200, *self.server.answer)
            else:
                self._say(504, "This took too long", "Look into the terminal: it says how the sign-in ended.")
        finally:
            self.server.shown.set()

    def _say(self, status: int, title: str, text: str) -> None:
        page = _PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Length": str(len(page))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Nothing: the address holds the code."""
