"""One service, one origin, one HTTP client: the only place where requests are made.

Redirects are never followed and the environment's proxies and netrc never read: either would carry the secret key to
somebody else. Either the authorities of one file are trusted and nobody else, or those of the system's trust store,
whatever the environment says (:mod:`agent.wire.trust`); none is loaded for ``http://``.
"""

from __future__ import annotations

import contextlib
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
from agent.wire.answers import Answer, one_line, read_body
from agent.wire.auth import Credential, origin_of
from agent.wire.faults import FAULTS, explain, raise_for_status
from agent.wire.limits import ANSWER_BYTES
from agent.wire.lists import Page, PageWalk, Params
from agent.wire.network import open_transport
from agent.wire.secret import redact
from agent.wire.trust import service_trust

_CONNECT_MAX_S: Final = 5.0
_PORT_MAX: Final = 65_535
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
        self._auth = None if auth is None else auth.bound_to(self.base_url)
        self._timeout_s = timeout_s
        self.max_answer_bytes = max_answer_bytes
        self._transport = transport
        self.headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        self._monotonic = monotonic
        self.on_date: Callable[[float, float], object] | None = None
        self.on_headers: Callable[[Mapping[str, str]], object] = lambda _headers: None
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_interrupted = False
        self._is_closed = False
        is_secure = self.base_url.scheme == "https"
        self.is_certain = is_certain(self.base_url)
        # One for both clients. Over http:// it is never asked, and without authorities it would trust nobody.
        self._trust = service_trust(ca_file) if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
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
        request = self._build(
            client,
            method,
            path,
            params=params,
            body=body,
            headers=headers,
            wait_s=wait_s,
            traced=interruptible,
        )
        return self._exchange(client, request, wait_s, interruptible=interruptible, accepts=accepts)

    @contextlib.contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str] | None = None, silence_s: float
    ) -> Iterator[Iterator[bytes]]:
        """An answer without end, such as server-sent events, in the pieces that come; :meth:`interrupt` ends it.

        Args:
            path: relative to the base URL.
            headers: beside the ones that every request has.
            silence_s: how long the service may say nothing before the connection counts as lost.

        Raises:
            Interrupted: :meth:`interrupt` was called.
            ServiceError: the service refused, or the connection was lost, also while iterating.
        """
        client = self._usable_client(interruptible=True)
        request = self._build(
            client, "GET", path, params=None, body=None, headers=headers, wait_s=silence_s, traced=True
        )
        fault: TransportError | None = None
        try:
            response = client.send(request, auth=self._auth, stream=True, follow_redirects=False)
            try:
                if not response.is_success:
                    source = one_line(f"GET {self.origin}{request.url.path}")
                    content = read_body(response, self.max_answer_bytes, lambda: None)
                    raise_for_status(response, content, source=source, redact=self._redact)
                yield response.iter_raw()
            finally:
                response.close()
        except FAULTS as exc:
            fault = explain(exc, self.origin, self._timeout_s + silence_s, self._redact)
        self._end_if_interrupted()
        if fault is not None:
            raise fault

    def pages(self, path: str, params: Params | None = None) -> Iterator[tuple[Answer, Page]]:
        """Every page of a list with its answer, fetched when asked for.

        Raises:
            UnexpectedAnswer: no list; or one that goes on for ever, or in a way that the answer does not name: see
                :meth:`agent.wire.lists.PageWalk.proceed`.
        """
        walk = PageWalk(path, params or {}, self.url(path))
        while not walk.done:
            answer = self.request("GET", walk.target, params=walk.params)
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
            was_interrupted, self._is_interrupted = self._is_interrupted, False
        if was_interrupted:
            raise self._interrupted()
        return self._held

    def _build(
        self,
        client: httpx.Client,
        method: str,
        path: str,
        *,
        params: Params | None,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        wait_s: float,
        traced: bool,
    ) -> httpx.Request:
        sent = {**self.headers, **(headers or {})}
        for name, value in sent.items():
            if not (value.isascii() and value.isprintable()):
                raise InvalidMessage(f"the header {name} must be printable ASCII")
        if body is not None:
            sent["Content-Type"] = "application/json"
        timeout = httpx.Timeout(
            self._timeout_s, connect=min(self._timeout_s, _CONNECT_MAX_S), read=self._timeout_s + wait_s
        )
        extensions: dict[str, Any] = {"trace": self._note_socket} if traced else {}
        return client.build_request(
            method,
            self.url(path),
            params=dict(params) if params else None,
            content=body,
            headers=sent,
            timeout=timeout,
            extensions=extensions,
        )

    def _exchange(
        self,
        client: httpx.Client,
        request: httpx.Request,
        wait_s: float,
        *,
        interruptible: bool,
        accepts: Container[int],
    ) -> Answer:
        began_s = arrived_s = self._monotonic()
        fault: TransportError | None = None
        try:
            response = client.send(request, auth=self._auth, stream=True, follow_redirects=False)
            try:
                arrived_s = self._monotonic()
                content = self._read(response, arrived_s + max(_BODY_MAX_S, self._timeout_s))
            finally:
                response.close()
        except FAULTS as exc:
            fault = explain(exc, self.origin, self._timeout_s + wait_s, self._redact)
        if fault is not None:  # raised out here so that no httpx error, which holds the request, hangs on it
            if interruptible:
                self._end_if_interrupted()
            raise fault
        source = one_line(f"{request.method} {self.origin}{request.url.path}")
        answer = Answer(response.status_code, response.headers, content, source)
        if response.status_code not in accepts:
            is_meant = self.is_certain and not (request.method == "GET" and response.is_success)
            raise_for_status(response, content, source=source, redact=self._redact, page_is_meant=is_meant)
        is_from_service = answer.status < 400 and not answer.is_page
        if is_from_service:
            self.on_headers(response.headers)
        if self.on_date is not None and is_from_service and answer.server_time is not None:
            late_s = self._monotonic() - arrived_s  # the body took its time, and the header is as old by now
            self.on_date(answer.server_time + late_s, arrived_s - began_s)
        return answer

    def _read(self, response: httpx.Response, end_s: float) -> bytes:
        """The body, read to its end so that the connection is kept, or an error of the service without it."""
        status = response.status_code

        def check_deadline() -> None:
            if self._monotonic() > end_s:
                raise UnexpectedAnswer(
                    f"{self.origin} sends its answer too slowly and was cut off: the network is too slow for it",
                    status,
                )

        try:
            return read_body(response, self.max_answer_bytes, check_deadline)
        except UnexpectedAnswer:
            if status >= 300:
                return b""
            raise

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
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(f"the request to {self.origin} was ended on purpose")

    def _redact(self, text: str) -> str:
        return redact(text) if self._auth is None else self._auth.redact(text)


def check_base_url(base_url: str) -> httpx.URL:
    """The base URL without an ending slash.

    Raises:
        ConfigurationError: it cannot be used.
    """
    fault = "base_url: give http:// or https://, a host, and no user, query or fragment"
    try:
        url = httpx.URL(base_url.strip().rstrip("/"))
    except httpx.InvalidURL:
        raise ConfigurationError([fault], "base_url") from None
    has_address = bool(url.host) and "%" not in url.host and (url.port is None or 0 < url.port <= _PORT_MAX)
    if url.scheme not in {"http", "https"} or not has_address or url.userinfo or url.query or url.fragment:
        raise ConfigurationError([fault], "base_url")
    return url


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
