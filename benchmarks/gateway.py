"""One gateway beside the broker it works with; and figure A5, a command to a real agent and its result back, over MQTT.

Method. *A5*: a command is published at the gateway's side; the agent, a process with its default configuration, writes
it into its journal, runs ``ping``, writes the outcome and publishes the result; the clock stops when that arrives.
Beside it, in the same run and turn by turn, a bare echo: the same client, the same broker, the same two hops, QoS 1 and
TCP_NODELAY on every side, to a second process that only sends back. One message at a time, and a pause after each.
The bare round trip keeps nothing; the agent's has two commits on the disk in it (received and started, outcome), so one
flush of the disk and an agent whose state directory is in memory are measured in the same turns.

*Readings*: one client, QoS 1, at most 100 messages without an acknowledgement; first mosquitto alone with a subscriber
that does nothing, then the gateway as the subscriber, which has a reading on its disk before it acknowledges it, and a
service process behind it. At most 500 readings are ahead of their receipts; counted until the last receipt has come.

*Memory*: PSS of the gateway process after it has asked the service about every device; each has said over the broker
that it is online.

    python benchmarks/gateway.py [--rounds 500] [--readings 20000] [--devices 5000]

0 leaves a part out.

Exit codes: 0 A5 is within its bar, 1 it is not, 2 there is no mosquitto.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from agent.wire import topics
from agent.wire.topics import TopicKind
from benchmarks.gateway_fleet import gateway, register, service
from simulator.children import ChildProcess, program_path
from tests.mosquitto import Mosquitto, end_client, find_mosquitto, mosquitto

A5_BAR = 5.0
INFLIGHT = 100
AHEAD = 500
WARM_UP = 20
FEW_DEVICES = 10
# By then each device was asked about once.
SETTLE_S = 75.0
# What the round before left to do, a receipt and its commit, is over by then.
PAUSE_S = 0.03
_MEMORY = Path("/dev/shm")
# By default mosquitto drops what waits for a subscriber beyond 1,000 messages.
SETTINGS = ("max_queued_messages 0",)
_PATIENCE_S = 120.0

# Without TCP_NODELAY each small message would wait for the acknowledgement of the one before it.
ECHO = """
import socket, sys, paho.mqtt.client as paho
client = paho.Client(paho.CallbackAPIVersion.VERSION2, "echo", protocol=paho.MQTTv5)
client.on_socket_open = lambda c, _, sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.on_connect = lambda c, *_: c.subscribe("ask/+", 1)
client.on_subscribe = lambda *_: print("ready", flush=True)
client.on_message = lambda c, _, message: c.publish("answer" + message.topic[3:], message.payload, 1)
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_forever()
"""


class Client:
    """A paho client that counts what it was acknowledged and what came.

    Args:
        broker: where.
        name: its client id.
        topic_filter: what it subscribes to.
        counts: how much one message counts that came.
    """

    def __init__(
        self,
        broker: Mosquitto,
        name: str,
        topic_filter: str | None = None,
        counts: Callable[[bytes], int] = lambda _payload: 1,
    ) -> None:
        self.arrived = self.acknowledged = 0
        self._changed = threading.Condition()
        self._is_up = False
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        self.client.max_inflight_messages_set(INFLIGHT)
        self.client.on_socket_open = _send_at_once
        self.client.on_connect = lambda client, *_: (
            client.subscribe(topic_filter, 1) if topic_filter else self._note("_is_up", by=True)
        )
        self.client.on_subscribe = lambda *_: self._note("_is_up", by=True)
        self.client.on_message = lambda _client, _data, message: self._note(
            "arrived", by=counts(bytes(message.payload))
        )
        self.client.on_publish = lambda *_: self._note("acknowledged", by=1)
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        self.wait_until(lambda: self._is_up)

    def _note(self, name: str, *, by: int) -> None:
        with self._changed:
            setattr(self, name, getattr(self, name) + by)
            self._changed.notify_all()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that a message makes so."""
        with self._changed:
            if not self._changed.wait_for(is_so, _PATIENCE_S):
                raise RuntimeError(f"nothing more came within {_PATIENCE_S:.0f} s")

    def publish_many(
        self, topic: Callable[[int], str], payload: Callable[[int], bytes], count: int, *, retain: bool = False
    ) -> None:
        """So many messages, at most :data:`INFLIGHT` under way."""
        before = self.acknowledged
        for number in range(count):
            self.wait_until(lambda sent=number: sent - (self.acknowledged - before) < INFLIGHT)  # type: ignore[misc]
            self.client.publish(topic(number), payload(number), 1, retain)
        self.wait_until(lambda: self.acknowledged - before >= count)


def _send_at_once(_client: paho.Client, _data: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# --- readings ---------------------------------------------------------------------------------------------------------


def reading_of(per_message: int, number: int) -> bytes:
    """A message with so many readings, each under a key, so that the gateway tells what it has stored."""
    values = {"temperature_c": 21.5, "humidity": 40.25}
    several = [{"sensor_data": values, "key": f"{per_message}-{number}-{index}"} for index in range(per_message)]
    return json.dumps(several[0] if per_message == 1 else several).encode()


def broker_rate(broker: Mosquitto, count: int) -> float:
    """Messages per second through mosquitto to one subscriber."""
    publisher, subscriber = Client(broker, "publisher"), Client(broker, "subscriber", "plain/#")
    try:
        began_s = time.perf_counter()
        publisher.publish_many(lambda _: "plain/readings", lambda number: reading_of(1, number), count)
        subscriber.wait_until(lambda: subscriber.arrived >= count)
        return count / (time.perf_counter() - began_s)
    finally:
        end_client(publisher.client)
        end_client(subscriber.client)


def gateway_rate(broker: Mosquitto, device_id: str, messages: int, per_message: int) -> float:
    """Readings per second from one client until the gateway has told that all of them are on its disk."""
    receipts = topics.receipts(device_id)
    device = Client(broker, topics.user_name(device_id), receipts, lambda payload: len(json.loads(payload)["stored"]))
    try:
        began_s = time.perf_counter()
        for number in range(messages):
            # As docs/protocol.md asks for: a device sends on as receipts come.
            device.wait_until(lambda sent=number * per_message: sent - device.arrived < AHEAD)  # type: ignore[misc]
            device.client.publish(topics.sensor_data(device_id), reading_of(per_message, number), 1)
        device.wait_until(lambda: device.arrived >= messages * per_message)
        return messages * per_message / (time.perf_counter() - began_s)
    finally:
        end_client(device.client)


def wait_for_broker(log: Path) -> None:
    """Until the gateway listens at the broker."""
    until_s = time.monotonic() + _PATIENCE_S
    while "mqtt=connected" not in log.read_text():
        if time.monotonic() > until_s:
            raise RuntimeError("the gateway did not connect to the broker")
        time.sleep(0.1)


def pss_kb(pid: int) -> int:
    """A process's proportional share of memory, KiB (Linux)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


# --- figure A5 --------------------------------------------------------------------------------------------------------


class Asker:
    """The gateway's side of both round trips: one client that stamps what comes before it looks at it."""

    def __init__(self, broker: Mosquitto) -> None:
        self._changed = threading.Condition()
        self._arrived_s: dict[str, float] = {}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, "asker", protocol=paho.MQTTv5)
        self.client.on_socket_open = _send_at_once
        self.client.on_connect = lambda client, *_: client.subscribe(
            [("answer/+", 1), *((each, 1) for each in topics.GATEWAY_FILTERS)]
        )
        self.client.on_message = self._take
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()

    def _take(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        now_s = time.perf_counter()
        is_answer = message.topic.startswith("answer/")
        place = None if is_answer else topics.parse(message.topic)
        if place is not None and place.kind is TopicKind.RESULT:
            key = json.loads(message.payload)["key"]
            client.publish(topics.receipts(place.device_id), json.dumps({"stored": [key], "refused": []}), 1)
        what = json.loads(message.payload).get("status", "") if place and place.kind is TopicKind.STATUS else ""
        with self._changed:
            self._arrived_s[message.topic + what] = now_s
            self._changed.notify_all()

    def wait_for(self, topic: str) -> float:
        """When a message came on this topic, on the clock of :func:`time.perf_counter`."""
        with self._changed:
            if not self._changed.wait_for(lambda: topic in self._arrived_s, _PATIENCE_S):
                raise RuntimeError(f"nothing came on {topic} within {_PATIENCE_S:.0f} s")
            return self._arrived_s.pop(topic)

    def ask_ms(self, topic: str, payload: bytes, answer: str) -> float:
        """From handing a message to the client until its answer has come, milliseconds."""
        began_s = time.perf_counter()
        self.client.publish(topic, payload, 1)
        return 1000 * (self.wait_for(answer) - began_s)


@contextlib.contextmanager
def echo(broker: Mosquitto) -> Iterator[None]:
    """A process that sends back what it gets."""
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(broker.port)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the echo did not start")
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def agent(folder: Path, broker: Mosquitto, device_id: str) -> Iterator[None]:
    """A ``device-agent`` over MQTT as it is configured by default; the token is not looked at."""
    folder.mkdir()
    token = folder / "token"
    token.write_text("dat_benchmark")
    token.chmod(0o600)
    config: dict[str, Any] = {
        "mqtt": {"host": "127.0.0.1", "port": broker.port, "tls": False},
        "device": {"device_id": device_id},
        "auth": {"mode": "bearer", "token_file": str(token)},
        "state_dir": str(folder / "state"),
    }
    (folder / "agent.yaml").write_text(json.dumps(config))
    log = folder / "agent.log"
    child = ChildProcess("agent", log)
    child.start([str(program_path("device-agent")), "run", "--config", str(folder / "agent.yaml")])
    try:
        child.wait_until(lambda: "agent=ready" in log.read_text(), "it was ready", 60.0)
        yield
    finally:
        child.end()


def command_of(device_id: str, command_id: str) -> bytes:
    """A ``ping`` as the gateway sends it."""
    record = {
        "id": command_id,
        "device_id": device_id,
        "command_payload": {"command": "ping"},
        "status": "queued",
        "created_at": "2026-01-01T00:00:00Z",
    }
    return json.dumps(record).encode()


def flush_ms(folder: Path) -> float:
    """How long the disk takes to have 4 KiB safe, milliseconds."""
    with (folder / "flushed").open("ab") as file:
        file.write(bytes(4096))
        file.flush()
        began_s = time.perf_counter()
        os.fdatasync(file.fileno())
        return 1000 * (time.perf_counter() - began_s)


def round_trips(folder: Path, broker: Mosquitto, rounds: int) -> dict[str, list[float]]:
    """All kinds of round trips, one after the other in each round, milliseconds."""
    took: dict[str, list[float]] = {"bare": [], "disk": [], "memory": [], "flush": []}
    with contextlib.ExitStack() as stack:
        memory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)))
        asker = Asker(broker)
        stack.callback(end_client, asker.client)
        stack.enter_context(echo(broker))
        for name, place in (("disk", folder), ("memory", memory)):
            stack.enter_context(agent(place / "agent", broker, name))
            asker.wait_for(topics.status(name) + "online")
        for number in range(-WARM_UP, rounds):
            times = {"bare": asker.ask_ms(f"ask/{number}", b"{}", f"answer/{number}")}
            time.sleep(PAUSE_S)
            for name in ("disk", "memory"):
                command_id = f"c{number}"
                topic = topics.command(name, command_id)
                times[name] = asker.ask_ms(topic, command_of(name, command_id), topics.result(name, command_id))
                time.sleep(PAUSE_S)
            times["flush"] = flush_ms(folder)
            for name, time_ms in times.items() if number >= 0 else ():
                took[name].append(time_ms)
            time.sleep(PAUSE_S)
    return took


def show_round_trips(took: dict[str, list[float]]) -> float:
    """Print the table; the ratio that the bar is about."""
    bare = statistics.median(took["bare"])
    for name, label in (
        ("bare", "bare round trip over mosquitto"),
        ("disk", "A5: command to result, two commits on the disk"),
        ("memory", "the same with the state directory in memory"),
        ("flush", "one flush of this disk"),
    ):
        lower, middle, upper = statistics.quantiles(took[name], n=4)
        print(f"{label:<48} {middle:7.2f} ms ({lower:.2f} - {upper:.2f})  {middle / bare:5.2f} x", flush=True)
    return statistics.median(took["disk"]) / bare


# --- the program ------------------------------------------------------------------------------------------------------


def readings(folder: Path, broker: Mosquitto, count: int) -> None:
    """Rates through the broker alone and through the gateway."""
    plain = broker_rate(broker, count)
    print(f"{'mosquitto alone, one per message':<48} {plain:9,.0f} readings/s", flush=True)
    with running_gateway(folder / "rates", broker, 10) as (ids, _):
        for per_message in (1, 50):
            rate = gateway_rate(broker, ids[0], count // per_message, per_message)
            label = f"gateway, {per_message} per message"
            print(f"{label:<48} {rate:9,.0f} readings/s, {rate / plain:.2f} x", flush=True)


def memory(folder: Path, broker: Mosquitto, most: int) -> None:
    """The gateway's own memory with few and with many devices, each of which has said that it is online."""
    few = FEW_DEVICES, pss_of_gateway(folder, broker, FEW_DEVICES)
    for devices in (most // 5, most):
        pss = pss_of_gateway(folder, broker, devices)
        each = (pss - few[1]) / (devices - few[0])
        label = f"gateway, {devices:,} devices connected"
        print(f"{label:<48} {pss / 1024:9.1f} MB, {each:.2f} KB for each", flush=True)


def pss_of_gateway(folder: Path, broker: Mosquitto, devices: int) -> int:
    """Its memory once it has asked the service about every device, KiB."""
    with running_gateway(folder / f"fleet-{devices}", broker, devices) as (ids, pid):
        client = Client(broker, "devices")
        try:
            client.publish_many(
                lambda number: topics.status(ids[number]), lambda _: b'{"status": "online"}', len(ids), retain=True
            )
            time.sleep(SETTLE_S)
            pss = pss_kb(pid)
            # The broker keeps what was retained: the next gateway shall not find it.
            client.publish_many(lambda number: topics.status(ids[number]), lambda _: b"", len(ids), retain=True)
            return pss
        finally:
            end_client(client.client)


@contextlib.contextmanager
def running_gateway(place: Path, broker: Mosquitto, devices: int) -> Iterator[tuple[list[str], int]]:
    """A service with so many devices, and a gateway at the broker that knows them; their ids and its process."""
    place.mkdir()
    sections: dict[str, object] = {"enabled": True, "port": broker.port}
    with service(place, rate_limit=0) as base_url:
        ids = register(base_url, devices)
        with gateway(place, base_url, ids, mqtt=sections) as addresses:
            wait_for_broker(place / "gateway.log")
            yield ids, addresses.pid


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--readings", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--devices", type=int, default=5_000)
    given = parser.parse_args()
    program = find_mosquitto()
    if program is None:
        print("mosquitto is not installed: apt-get install mosquitto")
        return 2
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {machine}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name, mosquitto(program, Path(name) / "broker", SETTINGS) as broker:
        folder, ratio = Path(name), 0.0
        if given.rounds:
            ratio = show_round_trips(round_trips(folder, broker, given.rounds))
            verdict = "ok" if ratio <= A5_BAR else "NOT REACHED"
            print(f"{'A5':<48} {ratio:7.2f} x, bar {A5_BAR:.0f} x: {verdict}", flush=True)
        if given.readings:
            readings(folder, broker, given.readings)
        if given.devices:
            memory(folder, broker, given.devices)
    return 0 if ratio <= A5_BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
