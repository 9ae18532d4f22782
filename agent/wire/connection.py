"""One service, one origin, one HTTP client: the only place where requests are made.

Redirects are never followed and the environment's proxies and netrc never read: either would carry the secret key to
somebody else. Either the authorities of one file are trusted and nobody else, or those of the system's trust store,
whatever the environment says (:func:`agent.wire.network.trust_store`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from agent.errors import ConfigurationError, InvalidMessage, TransportError, UnexpectedAnswer
from agent.wire.answers import FAULTS, Answer, explain, one_line, raise_for_status
from agent.wire.limits import ANSWER_BYTES
from agent.wire.lists import Page, PageWalk, Params
from agent.wire.network import DEAD_AFTER_S, attempts, origin_of, read_url, service_trust
from agent.wire.secret import Credential

_CONNECT_MAX_S: Final = 5.0
_BODY_MAX_S: Final = 60.0
"""A body that goes on coming may take so long, or as long as a request may, whichever is more."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_LIMITS: Final = httpx.Limits(max_connections=4, max_keepalive_connections=4, keepalive_expiry=60.0)


class Interrupted(TransportError):
    """:meth:`Connection.interrupt` ended this request; nothing is wrong with the service."""


class Connection:
    """Requests to one base URL, from any thread.

    Interrupting. A long poll blocks in ``recv`` until the service answers. Interruptible requests use a pool of their
    own; its sockets are noted as they are opened (httpx's ``trace`` extension), and :meth:`interrupt` shuts them down,
    which ends the blocking call at once with nothing sent after it. Closing the client instead would close the file
    descriptor under the blocking call, which does not wake it. While a name is resolved or a connection is made there
    is nothing to shut down yet: connecting is bounded to 5 s, and ends right after.

    Args:
        base_url: ``http://`` or ``https://``, host, and a path prefix if the service has one.
        auth: the credential; only the base URL's origin is ever asked, so nobody else gets it.
        timeout_s: how long the service may be silent, beside what it may hold an answer; connecting has 5 s of it at
            most. A body may take 60 s as a whole.
        max_answer_bytes: the largest answer, after decoding.
        ca_file: PEM file with the authorities that alone are trusted; None trusts the system's.
        transport: replaces the network, for tests.
        user_agent: the ``User-Agent`` header.
        monotonic: the clock for the bound on a body.

    Attributes:
        max_answer_bytes: the largest answer, after decoding.
        is_certain: nobody but the service can answer: over ``https://``, and on this machine. There a web page is the
            service's own and its status counts; elsewhere it may be a captive portal's, and nothing is concluded.
        on_date: called with each good answer with the time at the service (``Date``, epoch seconds), and how long
            before that the request was sent, seconds; from whichever thread asked.
        headers: sent with each request; may be added to.
        on_headers: called with the headers of each good answer, from whichever thread asked.

    Raises:
        ConfigurationError: the base URL or the file with the authorities cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        auth: Credential | None = None,
        *,
        timeout_s: float = 10.0,
        max_answer_bytes: int = ANSWER_BYTES,
        ca_file: Path | None = None,
        transport: httpx.BaseTransport | None = None,
        user_agent: str = "device-agent",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base_url = check_base_url(base_url)
        self.origin = origin_of(self.base_url)
        self.is_certain = is_certain(self.base_url)
        self.max_answer_bytes = max_answer_bytes
        self.headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        self.on_date: Callable[[float, float], object] | None = None
        self.on_headers: Callable[[Mapping[str, str]], object] = lambda _headers: None
        self._auth = auth
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_interrupted = False
        self._is_closed = False
        trust = service_trust(ca_file) if self.base_url.scheme == "https" else None
        self._client, self._held = (
            httpx.Client(
                trust_env=False, follow_redirects=False, transport=transport or AddressTransport(trust, _LIMITS)
            )
            for _ in range(2)
        )
        for name in ("httpx", "httpcore"):  # they log every URL at INFO, and headers at DEBUG
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.WARNING)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
        interruptible: bool = False,
        accepts: Container[int] = (),
    ) -> Answer:
        """Make one request, once.

        Args:
            method: ``GET``, ``POST``, ``PUT`` or ``DELETE``.
            path: relative to the base URL, ids percent-encoded; or an absolute URL of the same origin.
            params: query parameters.
            body: JSON text.
            headers: beside the ones that every request has; printable ASCII.
            wait_s: how long the service may hold the answer, on top of the usual timeout.
            interruptible: :meth:`interrupt` ends it.
            accepts: statuses that are returned as they came, for a caller that judges them itself.

        Raises:
            Interrupted: :meth:`interrupt` was called.
            ServiceError: the class that fits; see :mod:`agent.errors`.
            InvalidMessage: a header value cannot be sent.
        """
        if self._is_closed:
            raise TransportError(f"the connection to {self.origin} is closed")
        if interruptible:
            self._end_if_interrupted()
        client = self._held if interruptible else self._client
        timeout_s = self._timeout_s + wait_s
        all_headers = {**self.headers, **(headers or {}), **({} if self._auth is None else self._auth.headers())}
        for name, value in all_headers.items():
            if not (value.isascii() and value.isprintable()):
                raise InvalidMessage(f"the header {name} must be printable ASCII")
        if body is not None:
            all_headers["Content-Type"] = "application/json"
        request = client.build_request(
            method,
            url_of(self.base_url, path),
            params=dict(params) if params else None,
            content=body,
            headers=all_headers,
            timeout=httpx.Timeout(self._timeout_s, connect=min(self._timeout_s, _CONNECT_MAX_S), read=timeout_s),
            extensions={"trace": self._note_socket} if interruptible else {},
        )
        sent_s = arrived_s = self._monotonic()
        fault: TransportError | None = None
        try:
            response = client.send(request, stream=True)
            try:
                arrived_s = self._monotonic()
                content = self._read(response, arrived_s + max(_BODY_MAX_S, self._timeout_s))
            finally:
                response.close()
        except FAULTS as exc:
            fault = explain(exc, self.origin, timeout_s)
        if fault is not None:  # raised out here so that no httpx error, which holds the request, hangs on it
            if interruptible:
                self._end_if_interrupted()
            raise fault
        answer = Answer(
            response.status_code, response.headers, content, one_line(f"{method} {self.origin}{request.url.path}")
        )
        if answer.status not in accepts:
            is_meant = self.is_certain and not (method == "GET" and response.is_success)
            raise_for_status(response, content, source=answer.source, page_is_meant=is_meant)
        if answer.status < 400 and not answer.is_page:
            self.on_headers(answer.headers)
            if self.on_date is not None and answer.server_time is not None:
                late_s = self._monotonic() - arrived_s  # the body took its time, and the header is as old by now
                self.on_date(answer.server_time + late_s, arrived_s - sent_s)
        return answer

    def pages(
        self,
        path: str,
        params: Params | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
        interruptible: bool = False,
    ) -> Iterator[tuple[Answer, Page]]:
        """Every page of a list with its answer, fetched when asked for.

        Args:
            path: of the list.
            params: query parameters.
            headers: of the first page's request alone.
            wait_s: how long the service may hold the first page (``wait``).
            interruptible: :meth:`interrupt` ends it.

        Raises:
            UnexpectedAnswer: no list; or one that goes on for ever, or in a way that the answer does not name: see
                :meth:`agent.wire.lists.PageWalk.proceed`.
        """
        walk = PageWalk(path, params or {}, url_of(self.base_url, path))
        while not walk.done:
            query = {**walk.params, "wait": f"{wait_s:g}"} if wait_s else walk.params
            answer = self.request(
                "GET", walk.target, params=query, headers=headers, wait_s=wait_s, interruptible=interruptible
            )
            headers, wait_s = None, 0.0
            page = walk.take(answer)
            yield answer, page
            walk.proceed(answer, page)

    def interrupt(self) -> None:
        """End the interruptible requests in flight, or the next one when none is; they raise :class:`Interrupted`.

        Call it from any thread; it does not wait. It stays in force until one request was ended by it, so it cannot be
        missed by a thread that is just about to ask.
        """
        with self._lock:
            self._is_interrupted = True
            sockets = list(self._sockets)
        for sock in sockets:
            _shut_down(sock)

    def close(self) -> None:
        """End interruptible requests and release all connections. Twice does no harm."""
        self._is_closed = True
        self.interrupt()
        self._client.close()
        self._held.close()

    def _read(self, response: httpx.Response, end_s: float) -> bytes:
        """The decoded body; of an error of the service nothing when it cannot be read.

        Raises:
            UnexpectedAnswer: it is too large or comes too slowly.
        """
        content = bytearray()
        for part in response.iter_bytes():  # to its end, so that the connection is kept
            content += part
            if len(content) > self.max_answer_bytes:
                fault = f"the answer is larger than {self.max_answer_bytes} bytes and was not read on: ask for less"
            elif self._monotonic() > end_s:
                fault = f"{self.origin} sends its answer too slowly and was cut off: the network is too slow for it"
            else:
                continue
            if response.is_success:
                raise UnexpectedAnswer(fault, response.status_code)
            return b""
        return bytes(content)

    def _note_socket(self, event: str, info: Mapping[str, Any]) -> None:
        if event not in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            return
        sock = info["return_value"].get_extra_info("socket")
        if not isinstance(sock, socket.socket):
            return
        with self._lock:
            self._sockets.add(sock)
            is_interrupted = self._is_interrupted
        if is_interrupted:  # it came while this connection was being made
            _shut_down(sock)

    def _end_if_interrupted(self) -> None:
        with self._lock:
            was_interrupted, self._is_interrupted = self._is_interrupted, False
        if was_interrupted:
            raise Interrupted(f"the request to {self.origin} was ended on purpose")


def check_base_url(base_url: str) -> httpx.URL:
    """The base URL without an ending slash.

    Raises:
        ConfigurationError: it cannot be used.
    """
    text = base_url.strip().rstrip("/")
    try:
        read_url(text)
        return httpx.URL(text)
    except (ValueError, httpx.InvalidURL) as error:
        raise ConfigurationError([f"base_url: {error}"], "base_url") from None


def is_certain(url: httpx.URL) -> bool:
    """Whether nobody but the service can answer at this address; see :attr:`Connection.is_certain`."""
    return url.scheme == "https" or url.host in _LOOPBACK


def url_of(base_url: httpx.URL, path: str) -> httpx.URL:
    """The absolute URL of a path below the base URL; an absolute URL must be of the same origin.

    Raises:
        InvalidMessage: another origin.
    """
    if path.startswith("/"):
        return httpx.URL(f"{str(base_url).rstrip('/')}{path}")
    url = httpx.URL(path)
    if origin_of(url) != origin_of(base_url):
        raise InvalidMessage(f"{one_line(url.host)} is not the host that this connection is for")
    return url


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed already, or handed over to its TLS socket
        # Not sock.shutdown(): an SSLSocket's own drops its TLS state under the thread that is reading.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class AddressTransport(httpx.HTTPTransport):
    """Tries the addresses of a name in turns, so that a dead one costs a second; httpx waits for each the whole time.

    Args:
        trust: the authorities for ``https://``; None where only ``http://`` is asked.
        limits: how many connections, and how long idle ones are kept.
    """

    def __init__(self, trust: ssl.SSLContext | None, limits: httpx.Limits) -> None:
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().__init__(verify=trust or nobody, limits=limits, trust_env=False)
        # The address that answered last comes first: its kept connections are used again, without asking for the name.
        self._answered: list[tuple[str, float | None]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Make the request at the first address that can be connected to; certificates are judged by the name."""
        url, timeout = request.url, request.extensions["timeout"]
        name = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        fault: Exception | None = None
        try:
            for address, limit_s in itertools.chain(self._answered, attempts(name, port, timeout["connect"])):
                asked = httpx.Request(
                    request.method,
                    url.copy_with(host=address),
                    headers=request.headers,
                    stream=request.stream,
                    extensions={
                        **request.extensions,
                        "sni_hostname": name,
                        "timeout": {**timeout, "connect": limit_s},
                    },
                )
                try:
                    response = super().handle_request(asked)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    fault, self._answered = error, []
                else:
                    self._answered = [(address, DEAD_AFTER_S)]
                    return response
        except OSError as error:
            fault = fault or httpx.ConnectError(str(error))
        raise fault or httpx.ConnectError(f"{name} has no address")
