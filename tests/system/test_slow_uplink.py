"""A backlog of readings behind a link that carries little: real agents, a real service, a proxy in between."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.wire.secret import Secret
from simulator.service.clock import SystemClock
from tests.support.variants import running_as, variant
from tests.system.agent_bench import API_KEY, SECRET_KEY, AgentBench, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# Each of an interval of its own: sensors of one interval are one row.
SENSORS = "sensors:\n" + "".join(
    f"  - {{name: s{number}, type: simulated, interval_s: {0.5 + number / 100}, "
    f"settings: {{reading: temperature_of_room_{number}}}}}\n"
    for number in range(10)
)
BACKLOG = 200


class Link:
    """A TCP proxy: what clients send passes at ``bytes_per_s``; requests of more than ``largest_bytes`` never arrive.

    What a client has sent still arrives after it has given up, as from the buffers of a slow network.
    """

    def __init__(self, to_port: int, *, bytes_per_s: float = 1e9, largest_bytes: int = 1 << 30) -> None:
        self._to_port = to_port
        self._bytes_per_s = bytes_per_s
        self._largest_bytes = largest_bytes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        self.port: int = server.sockets[0].getsockname()[1]
        self._server = server

    async def _start(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        back = asyncio.ensure_future(self._back(far_reader, writer))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._forth(reader, far_writer)
                far_writer.write_eof()
                await back
        finally:
            back.cancel()
            far_writer.close()
            writer.close()

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            sizes = [
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")
            ]
            body = await reader.readexactly(sizes[0]) if sizes else b""
            request = head + body
            if len(request) > self._largest_bytes:
                await reader.read()
                return
            await asyncio.sleep(len(request) / self._bytes_per_s)
            writer.write(request)
            await writer.drain()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # closed transports are gone after a turn of the loop


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[AgentBench]:
    with running_as(variant(), clock=SystemClock(), api_key=API_KEY, secret_key=Secret(SECRET_KEY)) as service:
        made = AgentBench(tmp_path, service.service.base_url)
        yield made
        made.close()


@pytest.mark.parametrize(
    "link", [{"bytes_per_s": 6000.0}, {"largest_bytes": 1600}], ids=["slow", "only small requests"]
)
def test_a_backlog_gets_through_whole_and_nothing_is_stored_twice(bench: AgentBench, link: dict[str, float]):
    def configure(port: int) -> None:
        bench.write_config(f"http://127.0.0.1:{port}", more=SENSORS)
        text = bench.config.read_text()
        bench.config.write_text(text.replace("timeout_s: 30", "timeout_s: 2"))

    def stored() -> list[tuple[str, str]]:
        found, cursor = [], None
        while True:
            query = {"device_id": bench.device_id, "limit": 1000, **({"cursor": cursor} if cursor else {})}
            answer = bench.client.request("GET", "/sensor-data", params=query).json()
            found += [(record["recorded_at"], str(record["sensor_data"])) for record in answer["data"]]
            cursor = answer["next_cursor"]
            if cursor is None:
                return found

    to_port = bench.client.base_url.port
    assert to_port is not None
    narrow = Link(to_port, **link)
    try:
        configure(9)
        agent = bench.start()
        threading.Event().wait(BACKLOG / 20)
        agent.kill()
        configure(narrow.port)
        agent = bench.start()
        agent.wait_for("readings=slow")
        agent.kill()
        agent = bench.start()
        wait_until(lambda: len(stored()) >= 2 * BACKLOG, 240)
        assert agent.terminate()[0] == 0
        found = stored()
        assert len(set(found)) == len(found), "nothing is stored twice"
    finally:
        narrow.close()
