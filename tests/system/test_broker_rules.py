"""Real mosquitto with the configuration that ``broker-config`` writes: who gets in, and who reaches what."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from agent.wire import topics
from agent.wire.secret import Secret
from gateway.broker import BrokerSettings, device_passwords, write_broker_config
from gateway.tokens import Tokens, make_token
from tests.conftest import require_program
from tests.support.mosquitto import Mosquitto, end_client, find_mosquitto
from tests.support.ports import free_port

DEVICES = (*(f"0190c7a4-5b1e-7cc1-9a55-{n:012}" for n in range(7)), "SN 8 ü", "urn:dev:9", "a%2Fb")
GATEWAY = "gateway"
GATEWAY_PASSWORD = Secret("the gateway's own")
WAIT_S = 60.0


class Site:
    """A folder with tokens and a broker's configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = folder / "tokens.db"
        self.settings = BrokerSettings(
            folder / "conf.d" / "device-gateway.conf",
            folder / "device-gateway",
            port=free_port(),
            standalone=True,
        )

    def issue(self, *device_ids: str) -> dict[str, str]:
        new = {device_id: make_token() for device_id in device_ids}
        with Tokens(self.tokens) as file:
            file.issue(new)
        return {device_id: token.reveal() for device_id, token in new.items()}

    def write(self):
        return write_broker_config(self.settings, device_passwords(self.tokens.parent), GATEWAY, GATEWAY_PASSWORD)

    @contextmanager
    def broker(self, *names: str) -> Iterator[tuple[Mosquitto, dict[str, Client]]]:
        """The file as it was written, but for its listener's line; and a client for each name, not yet connected."""
        self.write()
        program = find_mosquitto() or require_program("mosquitto")
        lines = [line for line in self.settings.configuration.read_text().splitlines() if line]
        own = [line for line in lines if not line.startswith("listener")]
        broker = Mosquitto(program, self.folder, own, port=self.settings.port)
        broker.start()
        clients = {name: Client(topics.user_name(name), broker.port) for name in names}
        try:
            yield broker, clients
        finally:
            for client in clients.values():
                client.end()
            broker.stop()


@dataclass
class Client:
    """One connection that remembers what it received."""

    name: str
    port: int
    protocol: int = paho.MQTTv5
    received: queue.Queue = field(default_factory=queue.Queue)
    connected: queue.Queue = field(default_factory=queue.Queue)
    gone: threading.Event = field(default_factory=threading.Event)

    def connect(self, password: str | None, client_id: str | None = None):
        """Whether the broker let it in."""
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id or self.name,
            protocol=self.protocol,
            reconnect_on_failure=False,  # one that is refused would try again while it ends
        )
        if password is not None:
            self.paho.username_pw_set(self.name, password)
        self.paho.on_connect = lambda _c, _u, _f, reason, _p: self.connected.put(reason)
        self.paho.on_message = lambda _c, _u, message: self.received.put((message.topic, message.payload.decode()))
        self.paho.on_disconnect = lambda *_: self.gone.set()
        self.paho.connect("127.0.0.1", self.port)
        self.paho.loop_start()
        return not self.connected.get(timeout=WAIT_S).is_failure

    def subscribe(self, filters):
        done = threading.Event()
        self.paho.on_subscribe = lambda *_: done.set()
        for begin in range(0, len(filters), 50):
            done.clear()
            self.paho.subscribe([(each, 1) for each in filters[begin : begin + 50]])
            assert done.wait(WAIT_S)

    def publish(self, topic, payload):
        return self.paho.publish(topic, payload, qos=1)

    def until(self, payload):
        """All that was received, up to and without this payload."""
        found = set()
        while True:
            topic, received = self.received.get(timeout=WAIT_S)
            if received == payload:
                return found
            found.add((topic, received))

    def end(self):
        end_client(self.paho)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def to_device(device_id):
    return [topics.command(device_id, "c1"), topics.receipts(device_id), topics.notice(device_id)]


def from_device(device_id):
    return [topics.result(device_id, "c1"), topics.sensor_data(device_id), topics.status(device_id)]


def ten_topics(device_id):
    """Six that exist, and four near them."""
    base = f"v1/devices/{topics.user_name(device_id)}"
    return [
        *to_device(device_id),
        *from_device(device_id),
        base,
        f"{base}/sensor-data/more",
        f"{base}/commands",
        f"{base}/commands/c1/result/more",
    ]


def test_no_device_reaches_another_ones_topics(site):
    """The matrix: ten devices and the gateway, each publishing to and subscribing to ten topics of each device."""
    tokens = site.issue(*DEVICES)
    every = [(owner, topic) for owner in DEVICES for topic in ten_topics(owner)]
    with site.broker(*DEVICES, GATEWAY) as (_, clients):
        gateway = clients[GATEWAY]
        assert gateway.connect(GATEWAY_PASSWORD.reveal())
        assert all(clients[device].connect(tokens[device]) for device in DEVICES)
        greedy = [*(topic for _, topic in every), "#", "$SYS/#", "v1/devices/+/commands/+", "$share/g/v1/devices/#"]
        for device in DEVICES:
            clients[device].subscribe(greedy)
        gateway.subscribe(["#", "$SYS/#", *(topic for _, topic in every)])
        sent = [client.publish(topic, f"{who} > {topic}") for who, client in clients.items() for _, topic in every]
        for message in sent:
            message.wait_for_publish(WAIT_S)
        for device in DEVICES:
            gateway.publish(topics.notice(device), "end").wait_for_publish(WAIT_S)
            expected = {(topic, f"{GATEWAY} > {topic}") for topic in to_device(device)}
            assert clients[device].until("end") == expected, device
            clients[device].publish(topics.sensor_data(device), f"end {device}").wait_for_publish(WAIT_S)
        from_devices = {(topic, f"{owner} > {topic}") for owner in DEVICES for topic in from_device(owner)}
        arrived = {each for each in gateway.until(f"end {DEVICES[-1]}") if not each[1].startswith("end")}
        assert arrived == from_devices


def test_only_who_has_a_token_gets_in(site):
    token, other = site.issue("d1", "d2").values()
    with site.broker() as (broker, _):
        for name, password, expected in (
            ("d1", token, True),
            ("d1", token[:-1], False),
            ("d1", other, False),
            ("d1", "", False),
            ("d1", None, False),
            ("d3", token, False),
            (GATEWAY, token, False),
            (GATEWAY, GATEWAY_PASSWORD.reveal(), True),
        ):
            for protocol in (paho.MQTTv5, paho.MQTTv311):
                client = Client(name, broker.port, protocol=protocol)
                assert client.connect(password) is expected, (name, protocol)
                client.end()


def test_a_device_cannot_push_another_one_off_and_tokens_that_come_or_go_count_after_sighup(site):
    tokens = site.issue("d1", "d2")
    with site.broker("d1", "d2", "d3") as (broker, clients):
        assert clients["d1"].connect(tokens["d1"])
        assert clients["d2"].connect(tokens["d2"], client_id="d1")
        clients["d2"].subscribe([topics.commands_filter("d2")])  # a round trip: by now the first one would be gone
        assert not clients["d1"].gone.is_set()
        [added] = site.issue("d3").values()
        with Tokens(site.tokens) as file:
            file.revoke("d1")
        assert site.write() == "reload"
        os.kill(broker.pid, signal.SIGHUP)
        assert clients["d1"].gone.wait(WAIT_S), "a revoked device is disconnected"
        assert clients["d3"].connect(added)
        assert not clients["d2"].gone.is_set()
