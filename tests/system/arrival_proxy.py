"""A proxy that keeps its own log of readings and commands: when each was taken or ordered, and when it was accepted.

It stands before the service, the gateway and the broker at once, for HTTP/1.1 with lengths and for MQTT 5. It can be
away (nobody listens, every connection is cut) and stand still (what comes waits for its end), by its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.wire.encoding import parse_time
from tests.system.unread_bytes import unread_bytes

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_ORDER = re.compile(rb"\r\nidempotency-key:\s*\S+-order-(\d+)-(\d+)\r", re.IGNORECASE)
_RESULT = re.compile(r"POST /devices/[^/ ]+/commands/([^/ ]+)/result ")
_START_S = 10.0
_LOOK_S = 0.005
_PUBLISH, _CONNECT = 3, 1


@dataclass
class Acceptance:
    """An acceptance on its way to a device. The device takes note of it between the two times.

    Attributes:
        from_s: when it went back. A device sends by HTTP again only what had no answer: there the last time counts.
            Receipts by MQTT may come twice to a device that reads both: there the first time counts.
        until_s: when the process of the device had read it from its socket, the last time if it came again. On a
            machine that has no core to spare this is later than ``from_s``.
    """

    from_s: float
    until_s: float


@dataclass
class Log:
    """What went through, with the times of day at which it did.

    Attributes:
        taken: of each reading that was sent, when it says that it was taken; by device and number, or by its key.
        accepted: of each of them whose acceptance went back to the device, when.
        first_s: of each order, by stream and number in it, when it came for the first time.
        orders: of each command, by its id, the order that it came of, and its name.
        ended: of each command, by its id, how its device reported its end, and when the acceptance of that went back.
        unread: what went back since the last look whether it was read.
    """

    taken: dict[object, float] = field(default_factory=dict)
    accepted: dict[object, Acceptance] = field(default_factory=dict)
    first_s: dict[tuple[int, int], float] = field(default_factory=dict)
    orders: dict[str, tuple[tuple[int, int], str]] = field(default_factory=dict)
    ended: dict[str, tuple[str, Acceptance]] = field(default_factory=dict)
    unread: list[Acceptance] = field(default_factory=list)

    def accept(self, key: object, before: Acceptance | None = None) -> None:
        """Note that the acceptance of a reading goes back now, or does so again."""
        self.accepted[key] = self._now(before)

    def end(self, command_id: str, status: str, before: Acceptance | None = None) -> None:
        """Note that the acceptance of a command's end goes back now, or does so again."""
        self.ended[command_id] = status, self._now(before)

    def _now(self, before: Acceptance | None) -> Acceptance:
        now_s = time.time()
        self.unread.append(before or Acceptance(now_s, now_s))
        return self.unread[-1]

    def readings(self) -> list[tuple[float, float]]:
        """The age of each reading that was accepted: the least and the most that it can be."""
        ages = ((at.from_s - self.taken[key], at.until_s - self.taken[key]) for key, at in self.accepted.items())
        return sorted(ages)

    def commands(self, rates: Sequence[float]) -> Iterator[tuple[str, str, tuple[float, float]]]:
        """Of each command that ended: its name, how, and the least and the most that its age can be.

        Args:
            rates: of each stream of the scenario, how many it orders in a second, evenly. No order comes before it is
                due, and most come at once: so the quickest of a stream says when its first one was due.
        """
        began_s = {
            stream: min(at_s - number / rate for (of, number), at_s in self.first_s.items() if of == stream)
            for stream, rate in enumerate(rates)
        }
        for command_id, (status, at) in self.ended.items():
            (stream, number), name = self.orders[command_id]
            due_s = began_s[stream] + number / rates[stream]
            yield name, status, (at.from_s - due_s, at.until_s - due_s)


@dataclass
class _Front:
    """A port behind the proxy, how its connections are served, and where the proxy listens for it; 0: nowhere yet."""

    behind: int
    serve: Callable[..., Coroutine[Any, Any, None]]
    port: int = 0


class ArrivalProxy:
    """Its outages count from the first reading.

    Args:
        http: ports of services to stand before.
        mqtt: ports of brokers to stand before.
        away: from when to when nobody listens, seconds since the first reading.
        frozen: from when to when everything waits.

    Attributes:
        ports: where to connect to instead, by the port behind.
    """

    def __init__(
        self, http: Sequence[int], mqtt: Sequence[int], *, away: tuple[float, float], frozen: tuple[float, float]
    ) -> None:
        self.log = Log()
        self._away, self._frozen = away, frozen
        self._first_s = 0.0
        self._connections: set[asyncio.Task[None]] = set()
        self._outage: asyncio.Task[None] | None = None
        self._looks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="arrival-proxy")
        self._thread.start()
        self._fronts = [_Front(port, self._http) for port in http] + [_Front(port, self._mqtt) for port in mqtt]
        self._servers: list[asyncio.Server] = []
        self._call(self._listen())
        self.ports = {front.behind: front.port for front in self._fronts}

    def close(self) -> None:
        """Cut everything and end the thread."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)

    async def _listen(self) -> None:
        self._servers = []
        for front in self._fronts:
            server = await asyncio.start_server(partial(self._serve, front), "127.0.0.1", front.port)
            front.port = server.sockets[0].getsockname()[1]
            self._servers.append(server)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [*self._connections, *self._looks, *([self._outage] if self._outage else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _be_away(self) -> None:
        begin_s, end_s = self._away
        await asyncio.sleep(begin_s)
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.sleep(end_s - begin_s)
        await self._listen()

    async def _serve(self, front: _Front, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await asyncio.open_connection("127.0.0.1", front.behind)
            await front.serve(reader, writer, answers, upstream)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            for each in (writer, upstream):
                if each is not None:
                    each.transport.abort()

    async def _wait_for_the_thaw(self, *, is_reading: bool) -> None:
        now_s = time.monotonic()
        if not self._first_s and is_reading:
            self._first_s = now_s
            self._outage = asyncio.create_task(self._be_away())
        begin_s, end_s = (self._first_s + at_s for at_s in self._frozen)
        if self._first_s and begin_s <= now_s < end_s:
            await asyncio.sleep(end_s - now_s)

    def _pass_on(self, packet: bytes, sink: asyncio.StreamWriter) -> None:
        """Write to a device, and note when it has read what the log has as unread."""
        unread, self.log.unread = self.log.unread, []
        sink.write(packet)
        if unread:
            look = asyncio.create_task(_note_when_read(unread, sink))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    # --- HTTP -----------------------------------------------------------------------------------------------------

    async def _http(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
    ) -> None:
        while True:
            head, body = await _message(reader)
            if order := _ORDER.search(head):
                self.log.first_s.setdefault((int(order[1]), int(order[2])), time.time())
            await self._wait_for_the_thaw(is_reading=head.startswith(b"POST /sensor-data "))
            upstream.write(head + body)
            answer, content = await _message(answers)
            if answer.split(b" ", 2)[1].startswith(b"2"):
                self._note_answer(head, body, content)
            self._pass_on(answer + content, writer)

    def _note_answer(self, head: bytes, body: bytes, content: bytes) -> None:
        if head.startswith(b"POST /sensor-data "):
            found = json.loads(body)
            for reading in found if isinstance(found, list) else [found]:
                key = reading["device_id"], reading["sensor_data"]["fleet_sequence"]
                self.log.taken[key] = parse_time(reading["recorded_at"])
                self.log.accept(key)
        elif order := _ORDER.search(head):
            name = json.loads(body)["command_payload"]["command"]
            self.log.orders[json.loads(content)["id"]] = (int(order[1]), int(order[2])), name
        elif (result := _RESULT.match(head.decode("latin-1"))) and (
            status := json.loads(body)["status"]
        ) != "in_progress":
            self.log.end(result[1], status)

    # --- MQTT -----------------------------------------------------------------------------------------------------

    async def _mqtt(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
    ) -> None:
        results: dict[str, tuple[str, str]] = {}
        pumps = [
            asyncio.create_task(self._pump(reader, upstream, results)),
            asyncio.create_task(self._pump(answers, writer, results)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, results: dict[str, tuple[str, str]]
    ) -> None:
        while True:
            packet, kind, rest = await _packet(source)
            topic, payload = _published(packet[0], rest) if kind == _PUBLISH else ("", b"")
            assert kind != _CONNECT or rest[6] == 5, "only MQTT 5 is understood here"
            await self._wait_for_the_thaw(is_reading=topic.endswith("/sensor-data"))
            self._note_published(topic, payload, results)
            self._pass_on(packet, sink)

    def _note_published(self, topic: str, payload: bytes, results: dict[str, tuple[str, str]]) -> None:
        if topic.endswith("/sensor-data"):
            found = json.loads(payload)
            for reading in found if isinstance(found, list) else [found]:
                self.log.taken[reading["key"]] = parse_time(reading["recorded_at"])
        elif topic.endswith("/result"):
            message = json.loads(payload)
            if "key" in message:
                results[message["key"]] = topic.split("/")[-2], message["status"]
        elif topic.endswith("/receipts"):
            for key in json.loads(payload)["stored"]:
                if key in results:
                    command_id, status = results[key]
                    self.log.end(command_id, status, self.log.ended.get(command_id, (status, None))[1])
                elif key in self.log.taken:
                    self.log.accept(key, self.log.accepted.get(key))


async def _note_when_read(unread: Sequence[Acceptance], sink: asyncio.StreamWriter) -> None:
    near, far = sink.get_extra_info("sockname"), sink.get_extra_info("peername")
    while unread_bytes(near, far):  # noqa: ASYNC110 - the kernel has no event for it
        await asyncio.sleep(_LOOK_S)
    now_s = time.time()
    for each in unread:
        each.until_s = max(each.until_s, now_s)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head, await reader.readexactly(int(length[1])) if length else b""


async def _packet(reader: asyncio.StreamReader) -> tuple[bytes, int, bytes]:
    """A whole control packet (MQTT 5, section 2.1): its bytes, its type, and what follows its fixed header."""
    head = await reader.readexactly(2)
    while head[-1] & 0x80:
        head += await reader.readexactly(1)
    rest = await reader.readexactly(_number(head, 1)[0])
    return head + rest, head[0] >> 4, rest


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A variable byte integer (section 1.5.5), and where it ends."""
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def _published(first: int, rest: bytes) -> tuple[str, bytes]:
    """Topic and payload of a PUBLISH (section 3.3)."""
    end = 2 + int.from_bytes(rest[:2])
    topic = rest[2:end].decode()
    assert topic, "topic aliases are not understood here"
    length, at = _number(rest, end + (2 if first >> 1 & 3 else 0))
    return topic, rest[at + length :]


@contextlib.contextmanager
def arrival_proxy(
    http: Sequence[int], mqtt: Sequence[int] = (), *, away: tuple[float, float], frozen: tuple[float, float]
) -> Iterator[ArrivalProxy]:
    """A proxy in front of these ports, which is ended with the block."""
    proxy = ArrivalProxy(http, mqtt, away=away, frozen=frozen)
    try:
        yield proxy
    finally:
        proxy.close()
