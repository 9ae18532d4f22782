"""What stands between a service and its database in tests: a TCP proxy that falls silent, or cuts at a commit."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator

_COMMIT = b"COMMIT"
_JOIN_S = 10


class Proxy:
    """Forwards connections to a loopback port.

    Attributes:
        met_silence: set once bytes came that were not passed on because of :meth:`fall_silent`.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self.met_silence = threading.Event()
        self._mark: bytes | None = None
        self._delivers = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def through(self, url: str) -> str:
        """The same URL by way of this proxy."""
        return re.sub(r":\d+/", f":{self._listener.getsockname()[1]}/", url)

    def fall_silent(self) -> None:
        """Pass nothing on and end nothing: a black hole."""
        self._flows.clear()

    def speak_again(self) -> None:
        """Pass on what has waited, and everything from now on."""
        self._flows.set()

    def cut_at_commit(self, mark: bytes, *, delivered: bool) -> None:
        """Cut the connection that sends ``mark`` at its next COMMIT.

        Args:
            mark: what tells the transaction that is meant from others.
            delivered: the server gets the COMMIT and only its answer is lost; otherwise the COMMIT is lost.
        """
        self._delivers = delivered
        self._mark = mark

    def close(self) -> None:
        """Cut all connections and end all threads."""
        self._flows.set()
        _end(self._listener)
        for sock in list(self._sockets):
            _end(sock)
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="tcp-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                cut = threading.Event()
                self._start(self._to_server, client, server, cut)
                self._start(self._to_client, server, client, cut)

    def _to_server(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        is_marked = False
        for data in self._received(client):
            is_marked = is_marked or (self._mark is not None and self._mark in data)
            if is_marked and _COMMIT in data:
                self._mark = None
                if not self._delivers:
                    break
                cut.set()
            if not _send(server, data):
                break
        _end(client)
        _end(server)

    def _to_client(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        for data in self._received(server):
            if cut.is_set() and _COMMIT in data:
                break
            if not _send(client, data):
                break
        _end(client)
        _end(server)

    def _received(self, sock: socket.socket) -> Iterator[bytes]:
        with contextlib.suppress(OSError):
            while data := sock.recv(65_536):
                if not self._flows.is_set():
                    self.met_silence.set()
                    self._flows.wait()
                yield data


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A proxy to a loopback port for the length of the block."""
    made = Proxy(port)
    try:
        yield made
    finally:
        made.close()


def _send(sock: socket.socket, data: bytes) -> bool:
    """Whether the other side was still there."""
    try:
        sock.sendall(data)
    except OSError:
        return False
    return True


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
