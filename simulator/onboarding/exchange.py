"""A transport that records when each request was sent and answered, and where the key then stands."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent.wire.network import open_transport
from agent.wire.rate_limit import RateLimit, read_rate_limit
from agent.wire.trust import trust_store


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
        rate_limit: where the key stands.
    """

    method: str
    path: str
    sent_at: float
    sent_s: float
    answered_s: float | None = None
    status: int | None = None
    rate_limit: RateLimit | None = None


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
        except httpx.TransportError:
            notes.append(Exchange(request.method, path, sent_at, sent_s))
            raise

        def note() -> None:
            limit = read_rate_limit(response.headers)
            notes.append(Exchange(request.method, path, sent_at, sent_s, self._clock(), response.status_code, limit))

        if response.is_stream_consumed:  # a transport in memory hands over what it has read itself
            note()
            return response
        stream = response.stream
        if not isinstance(stream, httpx.SyncByteStream):
            raise TypeError("a synchronous transport answers with a synchronous stream")
        response.stream = _UntilClosed(stream, note)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class _UntilClosed(httpx.SyncByteStream):
    def __init__(self, inner: httpx.SyncByteStream, done: Callable[[], None]) -> None:
        self._inner = inner
        self._done = done

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._inner)

    def close(self) -> None:
        self._inner.close()
        self._done()
