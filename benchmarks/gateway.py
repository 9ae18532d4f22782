"""One gateway beside the broker it works with; and figure A5, a command to a real agent and its result back, over MQTT.

Method. *Readings*: one client, QoS 1, at most 100 messages without an acknowledgement; first mosquitto alone with a
subscriber that does nothing, then the gateway as the subscriber, which has a reading on its disk before it acknowledges
it, and a service process behind it. At most 500 readings
are ahead of their receipts; counted until the last receipt has come. *Memory*: PSS of the
gateway process with few and with many devices, after it has served for a while. *A5*: a command is published, the agent
writes it into its journal, runs ``ping``, writes the outcome and publishes the result; beside it a bare echo over the
same broker by a second process that only sends back. One at a time, nothing else under way.

    python benchmarks/gateway.py [--readings 20000] [--rounds 500] [--devices 5000]

Exit codes: 0 A5 is within its bar, 1 it is not, 2 there is no mosquitto.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
from benchmarks.gateway_fleet import gateway, register, service
from simulator.demo.children import ChildProcess, program_path
from tests.gateway_stand_in import GatewayStandIn
from tests.mosquitto import Mosquitto, end_client, find_mosquitto, mosquitto

A5_BAR = 5.0
INFLIGHT = 100
AHEAD = 500
# By default mosquitto drops what waits for a subscriber beyond 1,000 messages.
SETTINGS = ("max_queued_messages 0",)
_PATIENCE_S = 120.0

# Without TCP_NODELAY each small message would wait for the acknowledgement of the one before it.
ECHO = """
import socket, sys, paho.mqtt.client as paho
client = paho.Client(paho.CallbackAPIVersion.VERSION2, "echo", protocol=paho.MQTTv5)
client.on_socket_open = lambda c, _, sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.on_connect = lambda c, *_: c.subscribe("ask", 1)
client.on_subscribe = lambda *_: print("ready", flush=True)
client.on_message = lambda c, _, message: c.publish("answer", message.payload, 1)
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

    def publish_many(self, topic: str, payload: Callable[[int], bytes], count: int) -> None:
        """So many messages, at most :data:`INFLIGHT` under way."""
        before = self.acknowledged
        for number in range(count):
            self.wait_until(lambda sent=number: sent - (self.acknowledged - before) < INFLIGHT)  # type: ignore[misc]
            self.client.publish(topic, payload(number), 1)
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
        publisher.publish_many("plain/readings", lambda number: reading_of(1, number), count)
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
            # A device sends on as receipts come; mosquitto drops receipts that nobody fetches beyond its queue.
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


def echo_ms(broker: Mosquitto, rounds: int) -> list[float]:
    """Round trips of a message over the broker, to another process and back, milliseconds."""
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(broker.port)], stdout=subprocess.PIPE, text=True)
    asker = Client(broker, "asker", "answer")
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the echo did not start")
        took: list[float] = []
        for number in range(rounds):
            began_s = time.perf_counter()
            asker.client.publish("ask", b"{}", 1)
            asker.wait_until(lambda wanted=number: asker.arrived > wanted)  # type: ignore[misc]
            took.append(1000 * (time.perf_counter() - began_s))
        return took
    finally:
        end_client(asker.client)
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def agent(folder: Path, broker: Mosquitto) -> Iterator[None]:
    """A ``device-agent`` over MQTT as it is configured by default; the token is not looked at."""
    token = folder / "token"
    token.write_text("dat_benchmark")
    token.chmod(0o600)
    config: dict[str, Any] = {
        "mqtt": {"host": "127.0.0.1", "port": broker.port, "tls": False},
        "device": {"device_id": "d1"},
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


def command_ms(folder: Path, broker: Mosquitto, rounds: int) -> list[float]:
    """From publishing a command to the arrival of its result, milliseconds."""
    peer = GatewayStandIn(broker)
    try:
        with agent(folder, broker):
            peer.wait_until(lambda: peer.status_of("d1") == "online")
            took: list[float] = []
            for number in range(rounds):
                wanted = (f"c{number}", "succeeded")
                began_s = time.perf_counter()
                peer.send("d1", wanted[0], {"command": "ping"})
                peer.wait_until(lambda key=wanted: key in peer.results)  # type: ignore[misc]
                took.append(1000 * (time.perf_counter() - began_s))
            return took
    finally:
        peer.close()


# --- the program ------------------------------------------------------------------------------------------------------


def readings(folder: Path, broker: Mosquitto, given: argparse.Namespace) -> None:
    """Rates and memory."""
    plain = broker_rate(broker, given.readings)
    print(f"{'mosquitto alone, one per message':<44} {plain:9,.0f} readings/s", flush=True)
    for devices in (10, given.devices):
        place = folder / f"fleet-{devices}"
        place.mkdir()
        sections: dict[str, object] = {"enabled": True, "port": broker.port}
        with service(place, rate_limit=0) as base_url:
            ids = register(base_url, devices)
            with gateway(place, base_url, ids, mqtt=sections) as addresses:
                wait_for_broker(place / "gateway.log")
                if devices == 10:
                    for per_message in (1, 50):
                        rate = gateway_rate(broker, ids[0], given.readings // per_message, per_message)
                        print(
                            f"{f'gateway, {per_message} per message':<44} {rate:9,.0f} readings/s, {rate / plain:.2f} x"
                        )
                    time.sleep(5.0)
                    few = pss_kb(addresses.pid)
                else:
                    time.sleep(75.0)  # each device was asked about once by then
                    many = pss_kb(addresses.pid)
    print(f"{'memory':<44} {few / 1024:9.1f} MB with 10 devices, {many / 1024:.1f} MB with {given.devices:,}")
    print(f"{'memory per device':<44} {(many - few) / given.devices:9.2f} KB")


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
    with tempfile.TemporaryDirectory() as name, mosquitto(program, Path(name) / "broker", SETTINGS) as broker:
        folder = Path(name)
        bare, command = echo_ms(broker, given.rounds), command_ms(folder, broker, given.rounds)
        ratio = statistics.median(command) / statistics.median(bare)
        print(f"{'A5: command to result over MQTT, p50':<44} {statistics.median(command):9.2f} ms")
        print(f"{'bare round trip over mosquitto, p50':<44} {statistics.median(bare):9.2f} ms")
        print(f"{'ratio':<44} {ratio:9.2f} x, bar {A5_BAR:.0f} x", flush=True)
        readings(folder, broker, given)
    return 0 if ratio <= A5_BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
