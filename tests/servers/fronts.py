"""Between a consumer and a server in the contract suite: proxies that count requests, and can send them elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

Result = TypeVar("Result")
_CHUNK_BYTES = 65_536
_HEAD_BYTES = 262_144
_STRANGER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 25\r\nConnection: close\r\n\r\n"
    b'{"data":[],"stranger":1}\n'
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request.

    Attributes:
        at_s: monotonic time, seconds.
        target: path and query as sent.
        api_key: of its header; empty without one.
    """

    at_s: float
    method: str
    target: str
    api_key: str

    @property
    def path(self) -> str:
        """Without the query."""
        return self.target.partition("?")[0]


class Front:
    """A proxy in front of one server for one consumer. Bytes of answers pass as they are.

    Attributes:
        url: where to send requests instead.
        seen: each request, in order.
        redirects: whether this request, the n-th with its path, is answered with a redirect to the other host.
        swaps: whether the server's own addresses in answers become addresses of the other host.
    """

    def __init__(self, fronts: Fronts, upstream_port: int) -> None:
        self._fronts = fronts
        self._upstream_port = upstream_port
        self.seen: list[Seen] = []
        self.redirects: Callable[[Seen, int], bool] | None = None
        self.swaps = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the consumer."""
        upstream: asyncio.StreamWriter | None = None
        back: asyncio.Task[None] | None = None
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen, body_bytes = _read_head(head)
                body = await reader.readexactly(body_bytes)
                self.seen.append(seen)
                count = sum(one.path == seen.path for one in self.seen)
                if self.redirects is not None and self.redirects(seen, count):
                    writer.write(self._redirect(seen))
                    await writer.drain()
                    continue
                if upstream is None:
                    answers, upstream = await asyncio.open_connection("127.0.0.1", self._upstream_port)
                    back = asyncio.create_task(self._pass_back(answers, writer))
                upstream.write(head + body)
                await upstream.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            # Closed before anything is waited for: this task may be canceled in the middle of waiting.
            ends = [end for end in (upstream, writer) if end is not None]
            for end in ends:
                end.close()
            if back is not None:
                back.cancel()
                await asyncio.gather(back, return_exceptions=True)
            for end in ends:
                await _end(end)

    async def _pass_back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await answers.read(_CHUNK_BYTES):
                writer.write(self._swapped(data) if self.swaps else data)
                await writer.drain()
        writer.close()

    def _swapped(self, data: bytes) -> bytes:
        # Ports of one length: a Content-Length stays right.
        for port in (self._upstream_port, self.port):
            data = data.replace(b"127.0.0.1:%d" % port, b"127.0.0.1:%d" % self._fronts.elsewhere_port)
        return data

    def _redirect(self, seen: Seen) -> bytes:
        where = f"http://127.0.0.1:{self._fronts.elsewhere_port}{seen.target}"
        return f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()


class Fronts:
    """All proxies of one test, and the other host, on a loop in a thread of their own.

    Attributes:
        elsewhere: what came to the other host: the bytes of each request's head, with every key that was sent along.
        elsewhere_port: where it listens.
    """

    def __init__(self) -> None:
        self.elsewhere: list[bytes] = []
        self.elsewhere_port = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fronts", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.elsewhere_port = self._call(self._listen(self._stranger))
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def before(self, url: str) -> Front:
        """A new proxy in front of the server at ``url``."""
        port = urlsplit(url).port
        assert port is not None
        front = Front(self, port)
        front.port = self._call(self._listen(front.serve))
        return front

    async def _listen(self, serve: Callable[..., Coroutine[Any, Any, None]]) -> int:
        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await serve(reader, writer)
            except asyncio.CancelledError:
                pass
            finally:
                await _end(writer)
                self._tasks.discard(task)

        server = await asyncio.start_server(taken, "127.0.0.1", 0, limit=_HEAD_BYTES, backlog=256)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _stranger(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.elsewhere.append(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as error:
            self.elsewhere.append(error.partial)
        with contextlib.suppress(OSError):
            writer.write(_STRANGER)
            await writer.drain()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        # Some turns: a connection that was just taken begins its task in a later one, and a closed socket ends there.
        for _ in range(10):
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _read_head(head: bytes) -> tuple[Seen, int]:
    """The request, and the size of its body in bytes."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    assert "transfer-encoding" not in headers, "requests of our programs have a length"
    return Seen(time.monotonic(), method, target, headers.get("x-api-key", "")), int(headers.get("content-length", 0))
