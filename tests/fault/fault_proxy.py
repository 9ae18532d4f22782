"""A bad network between a program and an HTTP service, on purpose: scripted by the test, repeated by its seed.

TCP hides lost, doubled and reordered packets from the programs that speak over it. What is left of them up there is
what this proxy does: answers that come late, in part, drop by drop or never; connections that end or fall silent;
requests that arrive twice (a retry of some proxy in between) or overtake each other. It needs no right of the system.

Example::

    with fault_proxy(service_port, seed=1) as network:
        agent.start(base_url=network.url)
        network.fail(Fault.LOST_ANSWER, share=0.5)
        ...
        network.heal()
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

_JOIN_S: Final = 10.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
_KEY: Final = re.compile(rb"\r\nidempotency-key:[^\r]*", re.IGNORECASE)
_BODYLESS: Final = (b"204", b"304")
_DISCOVERY: Final = b"/.well-known/device-service"


class Fault(StrEnum):
    """What happens to an exchange."""

    REFUSED = "refused"
    """The connection ends before the request is passed on."""
    LOST_ANSWER = "lost answer"
    """The service gets the request and does what it says; the connection ends instead of the answer."""
    DELAY = "delay"
    """The answer waits for ``seconds``; beyond the caller's patience it is an answer that comes too late."""
    BLACK_HOLE = "black hole"
    """Nothing passes and nothing ends, in either direction; after the fault what has waited goes on."""
    HALF_OPEN = "half-open"
    """The service is gone and the caller is not told: the connection stays silent for good, also after the fault."""
    TRUNCATED = "truncated"
    """The connection ends in the middle of the answer."""
    DRIP = "drip"
    """The answer comes byte by byte."""
    DUPLICATED = "duplicated"
    """The request reaches the service twice."""
    REORDERED = "reordered"
    """The request waits until another one has overtaken it, or for ``seconds``."""
    PORTAL = "captive portal"
    """200 and a web page, whatever was asked."""
    TOO_MANY = "429 storm"
    """429 for everything, with ``Retry-After: 1``."""
    FAILING = "500 storm"
    """500 for everything."""


_OF_ANSWERS: Final = frozenset({Fault.LOST_ANSWER, Fault.TRUNCATED, Fault.DELAY, Fault.DRIP})
_PAGE: Final = b"<html><body>Please sign in</body></html>"
_ERROR: Final = b'{"error":"storm","message":"made by a test"}'
_INSTEAD: Final = {
    Fault.PORTAL: b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n%b" % (len(_PAGE), _PAGE),
    Fault.TOO_MANY: b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_ERROR), _ERROR),
    Fault.FAILING: b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_ERROR), _ERROR),
}
_PLAIN: Final = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_ERROR),
    _ERROR,
)


class FaultProxy:
    """Forwards HTTP/1.1 to a loopback port, exchange by exchange.

    Args:
        port: the service's; may be changed while it runs.
        seed: which exchanges a share below 1 hits.
        plain: the service seems to have no extensions: none is listed, and idempotency keys do not arrive.

    Attributes:
        met: how many exchanges met which fault, ever.
    """

    def __init__(self, port: int, *, seed: int = 0, plain: bool = False) -> None:
        self.port = port
        self.met: Counter[Fault] = Counter()
        self._plain = plain
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._share = 1.0
        self._seconds = 1.0
        self._healed = threading.Event()
        self._overtaken = threading.Condition()
        self._passed = 0
        self._closed = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The base URL to use instead of the service's."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def fail(self, fault: Fault, *, share: float = 1.0, seconds: float = 1.0) -> None:
        """From now on so large a share of the exchanges meets this fault, those that are under way included."""
        with self._lock:
            self._fault, self._share, self._seconds = fault, share, seconds
            self._healed = threading.Event()

    def heal(self) -> None:
        """The network is well again."""
        with self._lock:
            self._fault = None
            self._healed.set()

    def close(self) -> None:
        """Cut all connections and end all threads."""
        self._closed.set()
        self.heal()
        with self._lock:
            sockets = [self._listener, *self._sockets]
        for each in sockets:
            _end(each)
        for thread in self._threads:
            thread.join(_JOIN_S)

    # --- threads ------------------------------------------------------------------------------------------------------

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="fault-proxy", daemon=True)  # type: ignore[arg-type]  # bound methods of several shapes
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._start(self._serve, self._keep(client))

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        try:
            with contextlib.suppress(OSError):
                while (request := _read_message(client)) is not None:
                    server = server or self._connect()
                    if not self._exchange(client, server, request):
                        break
        finally:
            self._drop(client)
            if server is not None:
                self._drop(server)

    def _connect(self) -> socket.socket:
        return self._keep(socket.create_connection(("127.0.0.1", self.port)))

    def _keep(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._sockets.add(sock)
        if self._closed.is_set():
            _end(sock)
        return sock

    def _drop(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(sock)
        _end(sock)

    # --- one exchange -------------------------------------------------------------------------------------------------

    def _exchange(self, client: socket.socket, server: socket.socket, request: bytes) -> bool:
        """Pass one request on and its answer back, as well as the network does; False when the connection ended."""
        if self._plain:
            if _DISCOVERY in request.partition(b"\r\n")[0]:
                client.sendall(_PLAIN)
                return True
            request = _KEY.sub(b"", request)
        fault = self._draw()
        if fault in _INSTEAD:
            client.sendall(_INSTEAD[fault])
            return True
        if fault is Fault.HALF_OPEN:
            while client.recv(65_536):  # it may say what it likes
                pass
        if fault in {Fault.REFUSED, Fault.HALF_OPEN}:
            return False
        self._pass_on(server, request, fault)
        answer = _read_message(server, is_answer=True)
        with self._overtaken:
            self._passed += 1
            self._overtaken.notify_all()
        if answer is None:
            return False
        # A held poll began before the fault and ends in it.
        return self._answer(client, answer, fault or self._draw(only_answers=True))

    def _pass_on(self, server: socket.socket, request: bytes, fault: Fault | None) -> None:
        if fault is Fault.BLACK_HOLE:
            self._healed.wait()
        if fault is Fault.REORDERED:
            self._let_another_pass()
        if fault is Fault.DUPLICATED:
            with contextlib.closing(self._connect()) as other:
                other.sendall(request)
                _read_message(other)
        server.sendall(request)

    def _answer(self, client: socket.socket, answer: bytes, fault: Fault | None) -> bool:
        if fault is Fault.LOST_ANSWER:
            return False
        if fault is Fault.TRUNCATED:
            client.sendall(answer[: self._chance.randrange(len(answer))])
            return False
        if fault is Fault.DELAY:
            self._closed.wait(self._seconds)  # time is what this fault is made of
        if fault is Fault.DRIP:
            for position in range(len(answer)):
                client.sendall(answer[position : position + 1])
                if self._healed.wait(0.01):
                    answer = answer[position + 1 :]
                    break
            else:
                return True
        client.sendall(answer)
        return True

    def _draw(self, *, only_answers: bool = False) -> Fault | None:
        with self._lock:
            fault = self._fault
            if fault is None or (only_answers and fault not in _OF_ANSWERS):
                return None  # before the die is cast: the nth exchange meets the same in every run
            if self._chance.random() >= self._share:
                return None
            self.met[fault] += 1
            return fault

    def _let_another_pass(self) -> None:
        with self._overtaken:
            passed = self._passed
            self._overtaken.wait_for(lambda: self._passed > passed or self._closed.is_set(), self._seconds)


@contextlib.contextmanager
def fault_proxy(port: int, *, seed: int = 0, plain: bool = False) -> Iterator[FaultProxy]:
    """A proxy to a loopback port for the length of the block."""
    made = FaultProxy(port, seed=seed, plain=plain)
    try:
        yield made
    finally:
        made.close()


def _read_message(sock: socket.socket, *, is_answer: bool = False) -> bytes | None:
    """One request or answer, head and body; None when the other side is gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65_536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    if is_answer and head.split(b" ", 2)[1] in _BODYLESS:
        return data
    if _CHUNKED.search(head):
        while not body.endswith(b"0\r\n\r\n"):
            more = sock.recv(65_536)
            if not more:
                return None
            body += more
        return head + b"\r\n\r\n" + body
    length = _LENGTH.search(head)
    wanted = int(length.group(1)) if length else 0
    while len(body) < wanted:
        more = sock.recv(65_536)
        if not more:
            return None
        body += more
    return head + b"\r\n\r\n" + body


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
