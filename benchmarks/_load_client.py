"""A load generator for one HTTP route, strong enough to be never the limit of a Python server.

asyncio protocols on httptools, keep-alive, one request at a time for each connection. Run it in a process of its own,
so that it competes with the server for the machine only::

    python benchmarks/_load_client.py http://127.0.0.1:8080/sensor-data --body '{"device_id": ...}'
        --header 'x-api-key: mk_...' --connections 64 --seconds 5

It prints one JSON object, :class:`LoadResult`. Latency is from sending a request to the end of its answer, under as
much load as the server takes (closed loop): it says how the server behaves when it is full, not how quick it is at
ease.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httptools


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one run came to.

    Attributes:
        requests: answers that came within the time.
        seconds: how long it ran.
        statuses: HTTP status -> how many answers.
        latency_ms: percentile -> milliseconds.
    """

    requests: int
    seconds: float
    statuses: dict[str, int]
    latency_ms: dict[str, float]

    @property
    def per_second(self) -> float:
        """Answers in a second."""
        return self.requests / self.seconds


class _Connection(asyncio.Protocol):
    """Sends the request again and again, each when the answer to the one before is there."""

    def __init__(self, request: bytes, statuses: Counter[str], latencies_s: list[float]) -> None:
        self._request = request
        self._statuses = statuses
        self._latencies_s = latencies_s
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sent_s = 0.0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its base class
        self._send()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._latencies_s.append(time.perf_counter() - self._sent_s)
        self._statuses[str(self._parser.get_status_code())] += 1
        self._parser = httptools.HttpResponseParser(self)
        self._send()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost = True

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        if self._transport is not None:
            self._transport.write(self._request)


def make_request(url: str, headers: dict[str, str], body: bytes | None) -> bytes:
    """The bytes of a request: POST with a body, GET without."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def run_load(url: str, request: bytes, connections: int, seconds: float) -> LoadResult:
    """Load one address; a connection that the server closes is an error.

    Raises:
        ConnectionError: the server is not there or went away.
    """
    parts = urlsplit(url)
    statuses: Counter[str] = Counter()
    latencies_s: list[float] = []
    loop = asyncio.get_running_loop()
    opened = await asyncio.gather(
        *(
            loop.create_connection(
                lambda: _Connection(request, statuses, latencies_s), parts.hostname or "", parts.port or 80
            )
            for _ in range(connections)
        )
    )
    began = time.perf_counter()
    statuses.clear()
    latencies_s.clear()
    await asyncio.sleep(seconds)
    took_s = time.perf_counter() - began
    result = LoadResult(len(latencies_s), took_s, dict(statuses), _percentiles(latencies_s))
    if any(protocol.lost for _, protocol in opened):
        raise ConnectionError(f"{parts.netloc} closed connections under load")
    for _, protocol in opened:
        protocol.close()
    return result


def _percentiles(latencies_s: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_s)
    if not ordered:
        return {}
    return {
        f"p{percent:g}": round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000, 3)
        for percent in (50, 95, 99, 99.9)
    }


def load(
    url: str, *, headers: dict[str, str], body: bytes | None, connections: int = 64, seconds: float = 5
) -> LoadResult:
    """Run this file in a process of its own.

    Raises:
        RuntimeError: it failed; the text says why.
    """
    command = [sys.executable, str(Path(__file__)), url, "--connections", str(connections), "--seconds", str(seconds)]
    for name, value in headers.items():
        command += ["--header", f"{name}: {value}"]
    if body is not None:
        command += ["--body", body.decode()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the load generator failed: {done.stderr.strip()}")
    return LoadResult(**json.loads(done.stdout))


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("url")
    parser.add_argument("--header", action="append", default=[], help="name: value; may be repeated")
    parser.add_argument("--body", help="JSON text; with it the method is POST")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    headers = {name.strip(): value.strip() for name, _, value in (header.partition(":") for header in given.header)}
    request = make_request(given.url, headers, None if given.body is None else given.body.encode())
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    print(json.dumps(asdict(asyncio.run(run_load(given.url, request, given.connections, given.seconds)))))


if __name__ == "__main__":
    main()
