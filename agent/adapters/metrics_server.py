"""A page of text on a port of this machine or on a Unix socket: one thread, one reader at a time.

prometheus-client brings a server of its own, but one that starts a thread for each reader and knows no sockets of Unix.

Source: prometheus.io/docs/instrumenting/exposition_formats.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError
from agent.threads import OnCrash, WatchedThread, only_logged
from agent.wire.address import authority

_log = logging.getLogger(__name__)

Render = Callable[[str], tuple[bytes, str]]
"""Given the reader's ``Accept`` header: the page and its type."""

_PATH: Final = "/metrics"
_READER_TIMEOUT_S: Final = 5.0


class MetricsServer:
    """Serves what ``render`` gives at ``GET /metrics``.

    Args:
        render: makes the page, in the server's thread.
        port: of TCP, 0 takes a free one; None with a socket.
        host: to listen on.
        path: of the Unix socket; one that was left behind is replaced.
        mode: of that socket.
        on_crash: see :class:`~agent.threads.WatchedThread`.

    Raises:
        ConfigurationError: the port or the path cannot be taken.
    """

    def __init__(
        self,
        render: Render,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        path: Path | None = None,
        mode: int = 0o660,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._path = path
        handler = _handler(render)
        try:
            if path is not None:
                self._server: socketserver.BaseServer = _unix_server(path, mode, handler)
                self.address = f"unix:{path}"
            else:
                server = (_TcpServer6 if ":" in host else _TcpServer)((host, port or 0), handler)
                self._server = server
                self.address = f"http://{authority(host, server.server_address[1])}{_PATH}"
        except OSError as error:
            where = f"metrics.socket: {path}" if path is not None else f"metrics.port: {authority(host, port or 0)}"
            fix = "choose another one, or remove the section metrics"
            raise ConfigurationError(
                [f"{where} cannot be listened on: {error.strerror or error}; {fix}"], "metrics"
            ) from None
        self._thread = WatchedThread(lambda: self._server.serve_forever(0.5), name="metrics", on_crash=on_crash)

    def start(self) -> None:
        """Start the thread that serves metrics."""
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End it; a reader that dawdles is left behind."""
        ending = threading.Thread(target=self._server.shutdown, name="metrics-end", daemon=True)
        try:
            ending.start()
        except RuntimeError:  # the process is out of threads: the rest of the stop goes on
            _log.warning("metrics=left_behind no thread could be started to end it")
        else:
            ending.join(timeout_s)
        self._server.server_close()
        self._thread.join(0.1)
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


class _Quiet:
    """A reader that goes away in the middle is no news."""

    def handle_error(self, _request: Any, client_address: Any) -> None:
        _log.debug("metrics=reader_lost %s", client_address, exc_info=True)


class _TcpServer(_Quiet, socketserver.TCPServer):
    allow_reuse_address = True


class _TcpServer6(_TcpServer):
    address_family = socket.AF_INET6


class _UnixServer(_Quiet, socketserver.UnixStreamServer):
    pass


def _unix_server(path: Path, mode: int, handler: type[BaseHTTPRequestHandler]) -> socketserver.BaseServer:
    if path.is_socket():
        path.unlink()  # of an earlier process: only one agent has this state directory
    # Nobody connects before the mode is right.
    before = os.umask(0o177)
    try:
        server = _UnixServer(str(path), handler)
    finally:
        os.umask(before)
    path.chmod(mode)
    return server


def _handler(render: Render) -> type[BaseHTTPRequestHandler]:
    class MetricsRequestHandler(BaseHTTPRequestHandler):
        timeout = _READER_TIMEOUT_S
        server_version = "device-agent"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != _PATH:
                self._answer(
                    HTTPStatus.NOT_FOUND, f"the figures are at {_PATH}\n".encode(), "text/plain; charset=utf-8"
                )
                return
            page, kind = render(self.headers.get("Accept") or "")
            self._answer(HTTPStatus.OK, page, kind)

        def _answer(self, status: HTTPStatus, page: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a reader comes every few seconds."""

    return MetricsRequestHandler
