"""Figure A5: a command to a real agent and its result back, over MQTT, beside a bare echo.

Method. *A5*: a command is published at the gateway's side; the agent, a process with its default configuration, writes
it into its journal, runs ``ping``, writes the outcome and publishes the result; the clock stops when that arrives.
Beside it, in the same run and turn by turn, a bare echo: the same client, the same broker, the same two hops, QoS 1 and
TCP_NODELAY on every side, to a second process that only sends back. One message at a time, and a pause after each.
The bare round trip keeps nothing; the agent's has two commits on the disk in it (received and started, outcome).

    python -m benchmarks.command_trip [--rounds 500]

Exit codes: 0 within the bar, 1 not, 2 there is no mosquitto.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from agent.wire import topics
from agent.wire.topics import TopicKind
from benchmarks._rig import agent, judge, machine, printing
from tests.support.mosquitto import Mosquitto, end_client, find_mosquitto, mosquitto

A5_BAR = 5.0
WARM_UP = 20
# What the round before left to do, a receipt and its commit, is over by then.
PAUSE_S = 0.03
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


def _send_at_once(_client: paho.Client, _data: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


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
        if place is not None and what == "online":
            client.publish(topics.notice(place.device_id), "{}", 0)  # as a gateway does; an agent waits for it
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
def device(folder: Path, broker: Mosquitto, device_id: str) -> Iterator[None]:
    """A ``device-agent`` over MQTT as it is configured by default; the token is not looked at."""
    folder.mkdir()
    token, path = folder / "token", folder / "agent.yaml"
    token.write_text("dat_benchmark")
    token.chmod(0o600)
    config: dict[str, Any] = {
        "mqtt": {"host": "127.0.0.1", "port": broker.port, "tls": False},
        "device": {"device_id": device_id},
        "auth": {"mode": "bearer", "token_file": str(token)},
        "state_dir": str(folder / "state"),
    }
    path.write_text(json.dumps(config))
    with agent(path):
        yield


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


def round_trips(folder: Path, broker: Mosquitto, rounds: int) -> tuple[list[float], list[float]]:
    """Bare ones and those of commands, one after the other in each round, milliseconds."""
    bare, commands = list[float](), list[float]()
    with contextlib.ExitStack() as stack:
        asker = Asker(broker)
        stack.callback(end_client, asker.client)
        stack.enter_context(printing([sys.executable, "-c", ECHO, str(broker.port)]))
        stack.enter_context(device(folder / "agent", broker, "d1"))
        asker.wait_for(topics.status("d1") + "online")
        for number in range(-WARM_UP, rounds):
            bare.append(asker.ask_ms(f"ask/{number}", b"{}", f"answer/{number}"))
            time.sleep(PAUSE_S)
            topic, answer = topics.command("d1", f"c{number}"), topics.result("d1", f"c{number}")
            commands.append(asker.ask_ms(topic, command_of("d1", f"c{number}"), answer))
            time.sleep(PAUSE_S)
    return bare[WARM_UP:], commands[WARM_UP:]


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=500)
    given = parser.parse_args()
    program = find_mosquitto()
    if program is None:
        print("mosquitto is not installed: apt-get install mosquitto")
        return 2
    print(f"A5: a command over MQTT and its result, beside a bare echo\n{machine()}\n")
    with tempfile.TemporaryDirectory() as name, mosquitto(program, Path(name) / "broker") as broker:
        took = round_trips(Path(name), broker, given.rounds)
    for label, times in zip(("bare round trip", "command to result, two commits on the disk"), took, strict=True):
        lower, middle, upper = statistics.quantiles(times, n=4)
        print(f"     {label:<44}{middle:>14.2f} ms ({lower:.2f} - {upper:.2f})")
    ratio = statistics.median(took[1]) / statistics.median(took[0])
    return 0 if judge("x a bare round trip", ratio, A5_BAR) else 1


if __name__ == "__main__":
    sys.exit(main())
