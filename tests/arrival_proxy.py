"""A reverse proxy that keeps its own log of readings: when each was accepted, and when it says that it was taken.

It can be away (nobody listens, every connection is cut) and stand still (requests wait for its end), by its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator

from agent.wire.times import parse_time

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_START_S = 10.0


class ArrivalProxy:
    """Forwards HTTP/1.1 with lengths to a loopback port. Its outages count from the first reading.

    Args:
        port: the service's.
        away: from when to when nobody listens, seconds since the first reading.
        frozen: from when to when requests wait.

    Attributes:
        ages_s: of each reading that was accepted, in the order of the answers.
    """

    def __init__(self, port: int, *, away: tuple[float, float], frozen: tuple[float, float]) -> None:
        self.ages_s: list[float] = []
        self._service = port
        self._away, self._frozen = away, frozen
        self._first_s = 0.0
        self._connections: set[asyncio.Task[None]] = set()
        self._outage: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="arrival-proxy")
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """The base URL to use instead of the service's."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Cut everything and end the thread."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)

    async def _stop(self) -> None:
        self._server.close()
        tasks = [*self._connections, *([self._outage] if self._outage else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _be_away(self) -> None:
        begin_s, end_s = self._away
        await asyncio.sleep(begin_s)
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.sleep(end_s - begin_s)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await asyncio.open_connection("127.0.0.1", self._service)
            while True:
                head, body = await _read(reader)
                await self._wait_for_the_thaw(head)
                upstream.write(head + body)
                answer, content = await _read(answers)
                self._note(head, body, answer)
                writer.write(answer + content)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            for each in (writer, upstream):
                if each is not None:
                    each.transport.abort()

    async def _wait_for_the_thaw(self, head: bytes) -> None:
        now_s = time.monotonic()
        if not self._first_s and head.startswith(b"POST /sensor-data "):
            self._first_s = now_s
            self._outage = asyncio.create_task(self._be_away())
        begin_s, end_s = (self._first_s + at_s for at_s in self._frozen)
        if self._first_s and begin_s <= now_s < end_s:
            await asyncio.sleep(end_s - now_s)

    def _note(self, head: bytes, body: bytes, answer: bytes) -> None:
        if head.startswith(b"POST /sensor-data ") and answer.split(b" ", 2)[1].startswith(b"2"):
            found = json.loads(body)
            now_s = time.time()
            readings = found if isinstance(found, list) else [found]
            self.ages_s += [now_s - parse_time(reading["recorded_at"]) for reading in readings]


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head, await reader.readexactly(int(length[1])) if length else b""


@contextlib.contextmanager
def arrival_proxy(port: int, *, away: tuple[float, float], frozen: tuple[float, float]) -> Iterator[ArrivalProxy]:
    """A proxy in front of the service at this port, which is ended with the block."""
    proxy = ArrivalProxy(port, away=away, frozen=frozen)
    try:
        yield proxy
    finally:
        proxy.close()
