"""The HTTP client of one service, for a device and its gateway: the only place where requests are made.

:class:`Connection` makes them, :class:`DeviceClient` has a method for each call; the operator's calls are the
simulator's.

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
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from agent.errors import ConfigurationError, InvalidMessage, TransportError, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import (
    DECIDED,
    FAULTS,
    Answer,
    CommandList,
    Page,
    PageWalk,
    Params,
    explain,
    one_line,
    portal_text,
    read_commands,
)
from agent.wire.encoding import encode_json
from agent.wire.limits import ANSWER_BYTES, BATCH_MAX, LONG_POLL_MAX_S, PAGE_MAX
from agent.wire.models import (
    BatchAnswer,
    CommandResult,
    Device,
    JsonObject,
    NewRuntimeRecord,
    PostSensorData,
    Received,
    Sent,
)
from agent.wire.network import DEAD_AFTER_S, attempts, origin_of, read_url, service_trust
from agent.wire.secret import Credential
from agent.wire.server import Dialect, ServerProfile, read_announcement

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
        self.on_date: Callable[[float, float], object] = lambda _time, _took_s: None
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
            answer.raise_for_status(page_is_meant=is_meant)
        if answer.status < 400 and not answer.is_page:
            self.on_headers(answer.headers)
            if answer.server_time is not None:
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
                :meth:`agent.wire.answers.PageWalk.proceed`.
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
        super().__init__(verify=trust or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=limits, trust_env=False)
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


# --- the calls of a device --------------------------------------------------------------------------------------------

Record = TypeVar("Record", bound=Received)
Query = Mapping[str, str | int | None]

_ERRORS: Final = ("errors", "error", "failed", "rejected", "failures")
_ENVELOPES: Final = ("data", "result", "item", "record")


class DeviceClient(Connection):
    """A connection with a method for each call of a device, synchronous, usable from any thread.

    Every method makes its requests once: what to do about an error is the caller's, by the error's ``advice``. Whatever
    a 2xx to what a device sends has as its body, it is taken (rule E2 of the specification leaves it open). Methods
    that list return iterators that fetch page after page when asked for, so their errors come while iterating.
    """

    dialect = Dialect()
    """What the configuration says of the server."""

    def discover(self) -> ServerProfile:
        """``GET /.well-known/device-service``: what this server announces.

        A plain server announces nothing: it answers any 4xx but 401, 408, 425 and 429, 501, or a 2xx without such a
        list; also a web page, where nobody else can have sent it (:attr:`.Connection.is_certain`).

        Raises:
            ServiceError: not known: no answer, a captive portal, wrong credentials, a quota, a failing service.
        """
        answer = self.request("GET", paths.DISCOVERY, accepts=DECIDED)
        value = None
        if 200 <= answer.status < 300:
            value = None if answer.is_page else answer.json_or_none()
            is_readable = value is not None or not answer.content.strip()
            if not is_readable and not self.is_certain:
                raise UnexpectedAnswer(portal_text(answer.source, answer.status), answer.status)
        return read_announcement(value, str(self.base_url))

    def devices(
        self,
        *,
        product_id: str | None = None,
        user_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Device]:
        """``GET /devices``; a plain server may ignore the filters."""
        query = {"product_id": product_id, "user_id": user_id, "status": status}
        return self._list(Device, paths.DEVICES, query, limit)

    def device_commands(
        self,
        device_id: str,
        *,
        status: str | None = None,
        wait_s: float = 0.0,
        etag: str | None = None,
    ) -> CommandList:
        """``GET /devices/{deviceId}/commands``, all pages. :meth:`interrupt` ends it.

        One record that cannot be read never hides the others; each record has an ``id`` afterwards, derived from its
        content when the service gives none (:meth:`.CommandRecord.with_derived_id`). Of a list beyond
        :data:`~agent.wire.answers.ITEMS_MAX` commands both ends are read, and no page after that many.

        A page after the first that does not come takes nothing away from those before: see
        :attr:`CommandList.incomplete`, which also says when there are more pages than are read.

        Args:
            device_id: the device.
            status: ``open``, a single state, or None for all.
            wait_s: extension ``long-poll``: hold the answer until the list differs from ``etag``, up to 30 s.
            etag: of the list that is known; the answer is ``unchanged`` while it stays the same.

        Raises:
            Interrupted: :meth:`interrupt` was called.
            ServiceError: the first page did not come.
        """
        pages = self.pages(
            paths.device_commands(device_id),
            {"status": status} if status else {},
            headers={"If-None-Match": etag} if etag else {},
            wait_s=min(max(wait_s, 0.0), float(LONG_POLL_MAX_S)),
            interruptible=True,
        )
        return read_commands(pages, self.dialect, self.max_answer_bytes)

    def report_result(
        self, device_id: str, command_id: str, result: CommandResult, *, idempotency_key: str | None = None
    ) -> None:
        """``POST /devices/{device_id}/commands/{command_id}/result``, extension ``command-results``.

        What is sent again for the same command changes nothing.
        """
        self._write("POST", paths.command_result(device_id, command_id), result, idempotency_key=idempotency_key)

    def post_sensor_data(self, reading: PostSensorData, *, idempotency_key: str | None = None) -> None:
        """``POST /sensor-data``: when it returns, the reading is stored."""
        self._write("POST", paths.SENSOR_DATA, reading, idempotency_key=idempotency_key)

    def post_sensor_data_batch(
        self, readings: Sequence[PostSensorData], *, idempotency_key: str | None = None
    ) -> BatchAnswer:
        """``POST /sensor-data`` with an array, extension ``batch-sensor-data``: 1 to 500 readings.

        What ``errors`` does not name is stored. A 2xx whose body cannot be read means that all are; only where it
        mentions errors is nothing taken for accepted, so that the caller sends them one by one.

        Raises:
            InvalidMessage: none, or more than 500; nothing was sent.
        """
        if not 1 <= len(readings) <= BATCH_MAX:
            raise InvalidMessage(f"a batch has 1 to {BATCH_MAX} readings, not {len(readings)}")
        body = [reading.to_wire() for reading in readings]
        answer = self._write("POST", paths.SENSOR_DATA, body, idempotency_key=idempotency_key)
        try:
            return read_record(BatchAnswer, answer, "batch")
        except UnexpectedAnswer:
            value = answer.json_or_none()
            has_errors = isinstance(value, dict) and any(value.get(name) for name in _ERRORS)
            return BatchAnswer(accepted=0 if has_errors else len(readings))

    def create_runtime_record(self, record: NewRuntimeRecord, *, idempotency_key: str | None = None) -> None:
        """``POST /database/runtime-data``."""
        self._write("POST", paths.RUNTIME_DATA, record, idempotency_key=idempotency_key)

    # --- what all calls share -----------------------------------------------------------------------------------------

    def _write(
        self,
        method: str,
        path: str,
        body: Sent | list[JsonObject] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Answer:
        """One writing request."""
        content = None
        if body is not None:
            content = encode_json(body.to_wire() if isinstance(body, Sent) else body)
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self.request(method, path, body=content, headers=headers)

    def _list(
        self, model: type[Record], path: str, query: Query | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        """The records of a list, page by page, ``limit`` of them at most.

        Raises:
            UnexpectedAnswer: a record does not have the shape; those before it have been handed out.
        """
        params = given(query or {})
        if limit is not None:
            if limit < 1:
                raise InvalidMessage("limit must be at least 1")
            params["limit"] = min(limit, PAGE_MAX)
        pages = self.pages(path, params)
        return itertools.islice((_receive(model, item, answer) for answer, page in pages for item in page.items), limit)


def read_record(model: type[Record], answer: Answer, word: str, sent: JsonObject | None = None) -> Record:
    """The record in an answer: bare, in an envelope (``data``, or by its ``word``), or alone in an array.

    The specification leaves the answers of most writing endpoints open (rule E2). So with ``sent``, what we know
    already, a 2xx is a success whatever its body: what the answer lacks is taken from ``sent``. Taking its shape for a
    failure would send the same thing again for ever.

    Raises:
        UnexpectedAnswer: nothing was ``sent``, and the body is not JSON or there is no such record in it.
    """
    value = answer.json() if sent is None else answer.json_or_none()
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if sent is None:
        return _receive(model, _unwrap(model, value, word) if isinstance(value, dict) else value, answer)
    if isinstance(value, dict):
        with contextlib.suppress(InvalidMessage):
            stated = _unwrap(model, value, word)
            return model.receive({**sent, **stated})
    return _receive(model, sent, answer)


def given(query: Query) -> dict[str, str | int]:
    """The query parameters that are given."""
    return {name: value for name, value in query.items() if value is not None}


def _unwrap(model: type[Record], value: dict[str, Any], word: str) -> dict[str, Any]:
    if value.keys() & model.model_fields.keys() - {word}:
        return value
    for name in (word, *_ENVELOPES):
        inner = value.get(name)
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict):
            return inner
    return value


def _receive(model: type[Record], value: object, answer: Answer) -> Record:
    try:
        return model.receive(value)
    except InvalidMessage as exc:
        raise UnexpectedAnswer(
            f"{answer.source} answered something that is no {model.__name__}: {exc}", answer.status
        ) from None
