"""Generators of MQTT load for ``fleet_mqtt.py``: the fleet's engine, and the clients it is compared with.

Each is a closed loop: every client has so many messages on its way, and sends the next when one is acknowledged. Every
message's body is made for it, and every latency is written down; all generators make the same bodies with the same
function, on uvloop, with MQTT 5, TCP_NODELAY and one connection for each client. Prints one JSON object::

    python benchmarks/_mqtt_load.py engine --port 1883 --clients 4000 --in-flight 1 --seconds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import paho.mqtt.client as paho
import uvloop
from paho.mqtt.enums import CallbackAPIVersion

from agent.errors import Offline
from agent.wire import topics
from simulator.fleet.engine.addresses import TargetAddress
from simulator.fleet.engine.mqtt import MqttSessions, Opening
from simulator.fleet.outcomes import OutcomeClass

# mosquitto listens with a backlog of 100: more at once wait for TCP's own retries.
CONNECTING_MAX = 64
_QUALITY = 1


@dataclass(frozen=True, slots=True)
class Load:
    """What one generator came to.

    Attributes:
        acknowledged: PUBACKs within the time.
        cpu_s: CPU time of this process within it.
        latency_ms: percentile -> from the call that sends to the call that acknowledges.
    """

    generator: str
    acknowledged: int
    seconds: float
    cpu_s: float
    latency_ms: dict[str, float]


class Tally:
    """Bodies, and what became of them."""

    def __init__(self) -> None:
        self.running = False
        self.latencies_s = array("d")
        self._made = 0

    def body(self, client: int) -> bytes:
        """The next reading of a client."""
        self._made += 1
        second, millisecond = divmod(time.time_ns() // 1_000_000, 1000)
        return b'{"sensor_data":{"temperature_celsius":%.2f,"number":%d},"recorded_at":"%s.%03dZ"}' % (
            20 + client % 10,
            self._made,
            _second_text(second),
            millisecond,
        )

    def took(self, seconds: float) -> bool:
        """A message was acknowledged; whether the next one may go."""
        if self.running:
            self.latencies_s.append(seconds)
        return self.running


@lru_cache(maxsize=16)
def _second_text(second: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()


Start = Callable[[], None]
Generator = Callable[[Tally, int, int, int], Awaitable[tuple[Start, Callable[[], Awaitable[None]]]]]
"""Tally, port, clients, in flight -> connected; the two calls start the loop and end it."""


# --- ours -------------------------------------------------------------------------------------------------------


class _Device:
    __slots__ = ("_index", "_session", "_tally", "_topic", "_up")

    def __init__(self, engine: MqttSessions, index: int, tally: Tally, up: Callable[[], None]) -> None:
        self._index = index
        self._tally = tally
        self._up = up
        self._topic = topics.sensor_data(f"load-{index}")
        self._session = engine.open(index, Opening(f"load-{index}", None), self)

    def send(self) -> None:
        self._session.publish(self._topic, self._tally.body(self._index), self.acknowledged)

    def connected(self, _now_s: float) -> None:
        self._up()

    def arrived(self, topic: str, _payload: bytes, _now_s: float) -> None:
        raise AssertionError(f"{topic}: nothing is sent to a device here")

    def lost(self, error: Offline, _outcome: OutcomeClass, _now_s: float) -> None:
        raise error

    def acknowledged(self, _code: int, sent_s: float, now_s: float) -> None:
        if self._tally.took(now_s - sent_s):
            self.send()


async def engine(tally: Tally, port: int, clients: int, in_flight: int) -> tuple[Start, Callable[[], Awaitable[None]]]:
    """The fleet's engine."""
    made = MqttSessions(TargetAddress("127.0.0.1", port))
    gate = Gate()
    devices = []
    for index in range(clients):
        await gate.enter()
        devices.append(_Device(made, index, tally, gate.leave))
    await gate.until_empty()

    def start() -> None:
        for _ in range(in_flight):
            for device in devices:
                device.send()

    return start, made.close


class Gate:
    """So many connect at a time."""

    def __init__(self, most: int = CONNECTING_MAX) -> None:
        self._most = most
        self._inside = 0
        self._changed = asyncio.Event()

    async def enter(self) -> None:
        """Wait for a place."""
        while self._inside >= self._most:
            self._changed.clear()
            await self._changed.wait()
        self._inside += 1

    def leave(self) -> None:
        """Give it back."""
        self._inside -= 1
        self._changed.set()

    async def until_empty(self) -> None:
        """Wait until everybody has left."""
        while self._inside:
            self._changed.clear()
            await self._changed.wait()


# --- paho on asyncio --------------------------------------------------------------------------------------------


class _Paho:
    """One paho client on the loop: ``add_reader`` for reading, ``loop_misc`` by a timer that all share.

    Its documentation has ``add_writer`` for writing; writing on the loop's next turn instead spares two system calls
    for each message, and is what makes it as fast as it gets here.
    """

    def __init__(self, index: int, tally: Tally, up: Callable[[], None]) -> None:
        self._index = index
        self._tally = tally
        self._up = up
        self._topic = topics.sensor_data(f"load-{index}")
        self._loop = asyncio.get_running_loop()
        self._sent_s: dict[int, float] = {}
        client = self.client = paho.Client(CallbackAPIVersion.VERSION2, f"load-{index}", protocol=paho.MQTTv5)
        client.max_inflight_messages_set(100)
        client.on_socket_open = self._opened
        client.on_socket_close = self._closed
        client.on_socket_register_write = self._has_something_to_write
        client.on_socket_unregister_write = lambda *_: None
        client.on_connect = lambda *_: self._up()
        client.on_publish = self._published

    def connect(self, port: int) -> None:
        self.client.connect("127.0.0.1", port, 60)

    def send(self) -> None:
        body = self._tally.body(self._index)
        now_s = time.monotonic()
        self._sent_s[self.client.publish(self._topic, body, _QUALITY).mid] = now_s

    def _opened(self, client: paho.Client, _data: Any, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(sock, client.loop_read)

    def _closed(self, _client: paho.Client, _data: Any, sock: Any) -> None:
        self._loop.remove_reader(sock)

    def _has_something_to_write(self, client: paho.Client, _data: Any, _sock: Any) -> None:
        self._loop.call_soon(client.loop_write)

    def _published(self, _client: Any, _data: Any, mid: int, _code: Any, _properties: Any) -> None:
        if self._tally.took(time.monotonic() - self._sent_s.pop(mid)):
            self.send()


async def paho_on_asyncio(
    tally: Tally, port: int, clients: int, in_flight: int
) -> tuple[Start, Callable[[], Awaitable[None]]]:
    """paho, driven by the loop."""
    gate = Gate()
    made = []
    for index in range(clients):
        await gate.enter()
        made.append(_Paho(index, tally, gate.leave))
        made[-1].connect(port)
    await gate.until_empty()

    async def look_after() -> None:
        while True:
            await asyncio.sleep(1.0)
            for each in made:
                each.client.loop_misc()

    misc = asyncio.create_task(look_after())

    def start() -> None:
        for _ in range(in_flight):
            for each in made:
                each.send()

    async def end() -> None:
        misc.cancel()
        for each in made:
            each.client.disconnect()

    return start, end


GENERATORS: dict[str, Generator] = {"engine": engine, "paho": paho_on_asyncio}


async def measure(name: str, port: int, clients: int, in_flight: int, seconds: float) -> Load:
    """Connect everybody, load for so long, and count."""
    tally = Tally()
    start, end = await GENERATORS[name](tally, port, clients, in_flight)
    tally.running = True
    start()
    # Until the crowd of the first messages has dispersed.
    while len(tally.latencies_s) < 2 * clients * in_flight:  # noqa: ASYNC110 - an event would cost every message
        await asyncio.sleep(0.05)
    tally.latencies_s = array("d")
    cpu_s, began_s = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    tally.running = False
    ordered = sorted(tally.latencies_s)
    await end()
    last = len(ordered) - 1
    shown = {f"p{percent}": round(1000 * ordered[int(last * percent / 100)], 3) for percent in (50, 99)}
    return Load(name, len(ordered), took_s, cpu_s, shown)


def main() -> int:
    """Run one generator."""
    parser = argparse.ArgumentParser(description="Load a broker with QoS 1 publishes.")
    parser.add_argument("generator", choices=GENERATORS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    load = uvloop.run(measure(options.generator, options.port, options.clients, options.in_flight, options.seconds))
    json.dump(asdict(load), sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
