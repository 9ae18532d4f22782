"""Generators of MQTT load for ``fleet_mqtt.py``: the fleet's engine, and the clients it is compared with.

Each is a closed loop: every client has so many messages on its way, and sends the next when one is acknowledged. Every
message's body is made for it, and every latency is written down; all generators make the same bodies with the same
function, on uvloop, with MQTT 5, TCP_NODELAY and one connection for each client. Prints one JSON object::

    python -m benchmarks._mqtt_load engine --port 1883 --clients 4000 --in-flight 1 --seconds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any

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


Clients = tuple[Sequence[Any], Callable[[], Awaitable[None]]]
"""Those that are connected, each with ``send``, and what ends them."""


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


async def engine(tally: Tally, port: int, clients: int) -> Clients:
    """The fleet's engine."""
    made = MqttSessions(TargetAddress("127.0.0.1", port))
    return await connect_all(clients, lambda index, up: _Device(made, index, tally, up)), made.close


async def connect_all(clients: int, connect: Callable[[int, Callable[[], None]], Any]) -> list[Any]:
    """Connect everybody, so many at a time; ``connect`` is given a number, and what is to be called once it is done."""
    gate, made = asyncio.Semaphore(CONNECTING_MAX), []
    for index in range(clients):
        await gate.acquire()
        made.append(connect(index, gate.release))
    for _ in range(CONNECTING_MAX):
        await gate.acquire()
    return made


# --- paho on asyncio --------------------------------------------------------------------------------------------


class _Paho:
    """One paho client on the loop: ``add_reader`` for reading, ``loop_misc`` by a timer that all share.

    Its documentation has ``add_writer`` for writing; writing on the loop's next turn instead spares two system calls
    for each message, and is what makes it as fast as it gets here.
    """

    def __init__(self, port: int, index: int, tally: Tally, up: Callable[[], None]) -> None:
        self._index = index
        self._tally = tally
        self._topic = topics.sensor_data(f"load-{index}")
        self._loop = asyncio.get_running_loop()
        self._sent_s: dict[int, float] = {}
        client = self.client = paho.Client(CallbackAPIVersion.VERSION2, f"load-{index}", protocol=paho.MQTTv5)
        client.max_inflight_messages_set(100)
        client.on_socket_open = self._opened
        client.on_socket_close = self._closed
        client.on_socket_register_write = self._has_something_to_write
        client.on_socket_unregister_write = lambda *_: None
        client.on_connect = lambda *_: up()
        client.on_publish = self._published
        client.connect("127.0.0.1", port, 60)

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


async def paho_on_asyncio(tally: Tally, port: int, clients: int) -> Clients:
    """paho, driven by the loop."""
    made: list[_Paho] = await connect_all(clients, lambda index, up: _Paho(port, index, tally, up))

    async def look_after() -> None:
        while True:
            await asyncio.sleep(1.0)
            for each in made:
                each.client.loop_misc()

    misc = asyncio.create_task(look_after())

    async def end() -> None:
        misc.cancel()
        for each in made:
            each.client.disconnect()

    return made, end


GENERATORS = {"engine": engine, "paho": paho_on_asyncio}


async def measure(name: str, port: int, clients: int, in_flight: int, seconds: float) -> dict[str, float]:
    """Connect everybody, load for so long, and count: acknowledgements per second, share of a core, latencies."""
    tally = Tally()
    made, end = await GENERATORS[name](tally, port, clients)
    tally.running = True
    for _ in range(in_flight):
        for client in made:
            client.send()
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
    p50_ms, p99_ms = (1000 * ordered[(len(ordered) - 1) * percent // 100] for percent in (50, 99))
    return {"per_s": len(ordered) / took_s, "cpu": cpu_s / took_s, "p50_ms": p50_ms, "p99_ms": p99_ms}


def main() -> None:
    """Run one generator."""
    parser = argparse.ArgumentParser(description="Load a broker with QoS 1 publishes.")
    parser.add_argument("generator", choices=GENERATORS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    print(json.dumps(uvloop.run(measure(given.generator, given.port, given.clients, given.in_flight, given.seconds))))


if __name__ == "__main__":
    main()
