"""The fleet's load benchmarks, in small: they count what was answered, and the truth they are judged by is true."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from benchmarks._fleet_load import run_closed, run_open
from benchmarks.fleet_frozen import true_percentiles


@contextlib.asynccontextmanager
async def constant_server(seen: list[bytes]):
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen.append(await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sensor-data"
    finally:
        server.close()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("per_device", [False, True])
def test_a_closed_load_counts_answers_and_makes_each_body_anew(per_device):
    async def story():
        seen: list[bytes] = []
        async with constant_server(seen) as url:
            while True:
                seen.clear()
                load = await run_closed(url, connections=4, per_device=per_device, seconds=0.1, warm_up_s=0.05)
                if load.requests:  # a busy machine may let so short a time pass without any
                    return load, seen

    load, seen = asyncio.run(story())
    measured = seen[4:]  # the first of each connection only made it
    assert load.requests <= len(measured)
    assert load.failed == 0
    assert len(set(measured)) == len(measured)
    assert load.response_ms["p50"] <= load.response_ms["p99.9"]


def test_an_open_load_sends_what_was_planned():
    async def story():
        async with constant_server([]) as url:
            return await run_open(url, connections=2, rate_per_s=200, seconds=0.25)

    load = asyncio.run(story())
    assert (load.requests, load.failed) == (50, 0)


def test_the_true_percentiles_of_a_target_that_stands_still():
    # 100 requests, one each 0.1 s; those of 4.0 to 4.9 s wait until 5 s.
    truth = true_percentiles(10, 10, 4.0, 5.0)
    assert truth["p50"] == truth["p90"] == 0
    assert truth["p99"] == pytest.approx(900)
    assert truth["p99.9"] == pytest.approx(1000)
