"""A transport that records each exchange as it went over the wire, without any header or value in it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from agent.wire.answers import one_line, read_retry_after
from agent.wire.network import open_transport
from agent.wire.rate_limit import RateLimit, read_rate_limit
from agent.wire.secret import redact
from agent.wire.trust import trust_store

_BODY_BYTES: Final = 1 << 20
_DEPTH: Final = 8
_WORD_CHARACTERS: Final = 80

Shape = str | list[Any] | dict[str, Any]
"""The names and types of a JSON value, such as ``{"data": [{"device_id": "string"}]}``; never a value of it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, or why there is none.

    Attributes:
        method: ``GET``, ``POST``, ``DELETE``.
        path: as it was sent, with its query; ids are in it, credentials never are.
        sent_at: seconds since the epoch, by this machine's clock.
        sent_s: on the run's monotonic clock.
        answered_s: on the same clock, the answer read to its end; None without an answer.
        status: None without an answer.
        error: the body's ``error``; empty without one.
        shape: of the body.
        request_id: as the service named it; empty when it did not.
        retry_after_s: the wait that the service asked for.
        rate_limit: where the key stands.
        problem: why there is no answer, one word.
    """

    method: str
    path: str
    sent_at: float
    sent_s: float
    answered_s: float | None = None
    status: int | None = None
    error: str = ""
    shape: Shape = "nothing"
    request_id: str = ""
    retry_after_s: float | None = None
    rate_limit: RateLimit | None = None
    problem: str = ""


class RecordingTransport(httpx.BaseTransport):
    """Passes requests on and records them for the thread that made them.

    Args:
        inner: makes the requests; by default the network, as :class:`agent.wire.connection.Connection` would.
        connections: how many may be open at once.
        ca_file: the authorities that alone are trusted; None trusts the system's.
        clock: monotonic seconds.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | None = None,
        *,
        connections: int = 16,
        ca_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._inner = inner or open_transport(trust_store(ca_file), limits)
        self._clock = clock
        self._wall = wall
        self._local = threading.local()

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Exchange]]:
        """The exchanges of this thread for the length of the block, in order."""
        before = getattr(self._local, "notes", None)
        notes: list[Exchange] = []
        self._local.notes = notes
        try:
            yield notes
        finally:
            self._local.notes = before

    @contextlib.contextmanager
    def before_request(self, wait: Callable[[], object]) -> Iterator[None]:
        """Call ``wait`` once within the block: when this thread's next request is ready, right before it is sent."""
        self._local.wait = wait
        try:
            yield
        finally:
            self._local.wait = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and note it; called by httpx for each one."""
        request.headers["accept-encoding"] = "identity"  # so that the bytes on the way are the body
        wait: Callable[[], object] | None = getattr(self._local, "wait", None)
        if wait is not None:
            self._local.wait = None
            wait()
        noted: list[Exchange] | None = getattr(self._local, "notes", None)
        notes: list[Exchange] = [] if noted is None else noted
        path = request.url.raw_path.decode("ascii")
        sent_at, sent_s = self._wall(), self._clock()
        try:
            response = self._inner.handle_request(request)
        except httpx.TransportError as problem:
            notes.append(Exchange(request.method, path, sent_at, sent_s, problem=type(problem).__name__))
            raise

        def note(body: bytes) -> None:
            value = _read_json(body, response.headers.get("content-encoding", ""))
            error = value.get("error") if isinstance(value, dict) else None
            notes.append(
                Exchange(
                    request.method,
                    path,
                    sent_at,
                    sent_s,
                    self._clock(),
                    response.status_code,
                    redact(one_line(error))[:_WORD_CHARACTERS] if isinstance(error, str) else "",
                    shape_of(value),
                    one_line(response.headers.get("x-request-id", ""))[:_WORD_CHARACTERS],
                    read_retry_after(response.headers),
                    read_rate_limit(response.headers),
                )
            )

        if response.is_stream_consumed:  # a transport in memory hands over what it has read itself
            note(response.content)
            return response
        stream = response.stream
        if not isinstance(stream, httpx.SyncByteStream):
            raise TypeError("a synchronous transport answers with a synchronous stream")
        response.stream = _Tee(stream, note)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class _Tee(httpx.SyncByteStream):
    def __init__(self, inner: httpx.SyncByteStream, done: Callable[[bytes], None]) -> None:
        self._inner = inner
        self._done = done
        self._parts: list[bytes] = []
        self._left = _BODY_BYTES

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            self._parts.append(part[: self._left])
            self._left -= len(self._parts[-1])
            yield part

    def close(self) -> None:
        self._inner.close()
        self._done(b"".join(self._parts))


class _NotJson:
    """Stands for a body that is not JSON."""


def _read_json(body: bytes, encoding: str) -> object:
    """The body's value; None for an empty one."""
    if "gzip" in encoding:
        with contextlib.suppress(zlib.error):
            body = zlib.decompressobj(wbits=31).decompress(body, _BODY_BYTES)
    if not body.strip():
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _NotJson()


def shape_of(value: object, depth: int = _DEPTH) -> Shape:
    """Names and types, sorted; equal bodies of equal shape give the same."""
    if isinstance(value, dict) and depth:
        return {str(name): shape_of(inner, depth - 1) for name, inner in sorted(value.items())}
    if isinstance(value, list) and depth:
        shapes = [shape_of(item, depth - 1) for item in value]
        merged: list[Shape] = shapes[:1]
        for shape in shapes[1:]:
            merged[0] = _merge(merged[0], shape)
        return merged
    return _NAMES.get(type(value), "not JSON")


_NAMES: Final[dict[type, str]] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    type(None): "nothing",
    dict: "object",
    list: "array",
}


def _merge(one: Shape, other: Shape) -> Shape:
    """The shape of either: a member that only one has is marked with ``?``."""
    if one == other:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        plain_one, plain_other = ({name.rstrip("?"): name for name in shape} for shape in (one, other))
        merged: dict[str, Any] = {}
        for name in sorted(plain_one.keys() | plain_other.keys()):
            if name in plain_one and name in plain_other:
                both = _merge(one[plain_one[name]], other[plain_other[name]])
                optional = plain_one[name].endswith("?") or plain_other[name].endswith("?")
                merged[f"{name}?" if optional else name] = both
            else:
                merged[f"{name}?"] = one[plain_one[name]] if name in plain_one else other[plain_other[name]]
        return merged
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])] if one and other else one or other
    return " or ".join(sorted({*_words(one), *_words(other)}))


def _words(shape: Shape) -> set[str]:
    if isinstance(shape, str):
        return set(shape.split(" or "))
    return {"object" if isinstance(shape, dict) else "array"}
