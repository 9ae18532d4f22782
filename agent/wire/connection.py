"""One service, one origin, one HTTP client: the only place where requests are made.

Redirects are never followed and the environment's proxies and netrc never read: either would carry the secret key to
somebody else. Either the authorities of one file are trusted and nobody else, or those of the system's trust store,
whatever the environment says (:func:`agent.wire.network.trust_store`).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from agent.errors import ConfigurationError, InvalidMessage, TransportError, UnexpectedAnswer
from agent.wire.address import read_url
from agent.wire.answers import FAULTS, Answer, explain, one_line, raise_for_status
from agent.wire.auth import Credential, origin_of
from agent.wire.limits import ANSWER_BYTES
from agent.wire.lists import Page, PageWalk, Params
from agent.wire.network import service_trust
from agent.wire.transport import open_transport

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
        auth: the credential; it is bound to the base URL's origin.
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
        self._auth = None if auth is None else auth.bound_to(self.base_url)
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._transport = transport
        self._trust = service_trust(ca_file) if self.base_url.scheme == "https" else None
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_interrupted = False
        self._is_closed = False
        self._client = self._open_client()
        self._held: httpx.Client | None = None
        _quiet_loggers()

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
        client = self._usable_client(interruptible=interruptible)
        timeout_s = self._timeout_s + wait_s
        request = client.build_request(
            method,
            self.url(path),
            params=dict(params) if params else None,
            content=body,
            headers=self._headers_of(headers, body),
            timeout=httpx.Timeout(self._timeout_s, connect=min(self._timeout_s, _CONNECT_MAX_S), read=timeout_s),
            extensions={"trace": self._note_socket} if interruptible else {},
        )
        sent_s = arrived_s = self._monotonic()
        fault: TransportError | None = None
        try:
            response = client.send(request, auth=self._auth, stream=True)
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
        walk = PageWalk(path, params or {}, self.url(path))
        while not walk.done:
            query = {**walk.params, "wait": f"{wait_s:g}"} if wait_s else walk.params
            answer = self.request(
                "GET", walk.target, params=query, headers=headers, wait_s=wait_s, interruptible=interruptible
            )
            headers, wait_s = None, 0.0
            page = walk.take(answer)
            yield answer, page
            walk.proceed(answer, page)

    def url(self, path: str) -> httpx.URL:
        """The absolute URL of a path; an absolute URL must be of the same origin.

        Raises:
            InvalidMessage: another origin.
        """
        if path.startswith("/"):
            return httpx.URL(f"{str(self.base_url).rstrip('/')}{path}")
        url = httpx.URL(path)
        if origin_of(url) != self.origin:
            raise InvalidMessage(f"{one_line(url.host)} is not the host that this connection is for")
        return url

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
        self.interrupt()
        with self._lock:
            self._is_closed = True
            held, self._held = self._held, None
        self._client.close()
        if held is not None:
            held.close()

    def _open_client(self) -> httpx.Client:
        transport = self._transport or open_transport(self._trust, _LIMITS)
        return httpx.Client(trust_env=False, follow_redirects=False, transport=transport)

    def _usable_client(self, *, interruptible: bool) -> httpx.Client:
        """The client for a request that may be interrupted, or may not.

        Raises:
            TransportError: the connection is closed, or an :meth:`interrupt` ends this request before it begins.
        """
        with self._lock:
            if self._is_closed:
                raise TransportError(f"the connection to {self.origin} is closed")
            if not interruptible:
                return self._client
            if self._held is None:
                self._held = self._open_client()
            held = self._held
        self._end_if_interrupted()
        return held

    def _headers_of(self, more: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        headers = {**self.headers, **(more or {})}
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                raise InvalidMessage(f"the header {name} must be printable ASCII")
        return headers if body is None else {**headers, "Content-Type": "application/json"}

    def _read(self, response: httpx.Response, end_s: float) -> bytes:
        """The decoded body; of an error of the service nothing when it cannot be read.

        Raises:
            UnexpectedAnswer: it is too large or comes too slowly.
        """
        try:
            return self._whole_body(response, end_s)
        except UnexpectedAnswer:
            if response.is_success:
                raise
            return b""

    def _whole_body(self, response: httpx.Response, end_s: float) -> bytes:
        status, most = response.status_code, self.max_answer_bytes
        too_large = f"the answer is larger than {most} bytes and was not read on: ask for less"
        declared = response.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:15]) > most:
            raise UnexpectedAnswer(too_large, status)
        content = bytearray()
        for part in response.iter_bytes():  # to its end, so that the connection is kept
            content += part
            if len(content) > most:
                raise UnexpectedAnswer(too_large, status)
            if self._monotonic() > end_s:
                slow = f"{self.origin} sends its answer too slowly and was cut off: the network is too slow for it"
                raise UnexpectedAnswer(slow, status)
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


def _quiet_loggers() -> None:
    """Httpx logs every URL at INFO, and httpcore headers at DEBUG; an explicit level set by the program stays."""
    for name in ("httpx", "httpcore"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed already, or handed over to its TLS socket
        # Not sock.shutdown(): an SSLSocket's own drops its TLS state under the thread that is reading.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
