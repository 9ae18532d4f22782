"""The fleet's MQTT engine against a broker of somebody else (mosquitto), beside a client of somebody else (paho)."""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
import uvloop
from mqtt5 import QoS, Will

from agent.errors import LockedOut, Offline
from agent.wire import topics
from agent.wire.secret import Secret
from gateway.broker import BrokerSettings, write_broker_config
from gateway.tokens import mosquitto_password
from simulator.fleet.engine.addresses import TargetAddress
from simulator.fleet.engine.mqtt import MqttSessions, Opening
from simulator.fleet.outcomes import OutcomeClass
from tests.support.certificates import Authority
from tests.support.mosquitto import Mosquitto, end_client
from tests.support.ports import free_port

SOON_S = 60.0
TIMEOUT_S = 60.0


class Device:
    """One device on the engine, and what it is told."""

    def __init__(self, engine: MqttSessions, index: int, name: str, *, token: str = "t") -> None:  # noqa: S107 - it opens nothing
        self.engine, self.index, self.name, self.token = engine, index, name, token
        self.connections = 0
        self.arrivals: list[tuple[str, bytes]] = []
        self.loses_power = False  # when a message comes
        self.losses: list[tuple[Offline, OutcomeClass]] = []
        self.codes: list[int] = []
        self._changed = asyncio.Event()

    def open(self) -> None:
        name, subscriptions = topics.user_name(self.name), ((topics.commands_filter(self.name), 1),)
        will = Will(topics.status(self.name), payload=b"offline", qos=QoS.AT_LEAST_ONCE, retain=True)
        self.session = self.engine.open(self.index, Opening(name, Secret(self.token), subscriptions, will), self)

    def publish(self, topic: str, payload: bytes = b"{}", *, retain: bool = False) -> None:
        self.session.publish(topic, payload, self.acknowledged, retain=retain)

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(SOON_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def stand(self) -> None:
        count = self.connections
        self.open()
        await self.until(lambda: self.connections > count or self.losses)
        assert self.losses == []

    async def lose(self) -> tuple[Offline, OutcomeClass]:
        await self.until(lambda: self.losses)
        return self.losses[-1]

    def connected(self, now_s: float) -> None:
        self.connections += 1
        self._changed.set()

    def arrived(self, topic: str, payload: bytes, now_s: float) -> None:
        self.arrivals.append((topic, payload))
        if self.loses_power:
            self.engine.cut(self.index)
        self._changed.set()

    def lost(self, error: Offline, outcome: OutcomeClass, now_s: float) -> None:
        self.losses.append((error, outcome))
        self._changed.set()

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        assert sent_s <= now_s
        self.codes.append(code)
        self._changed.set()


@asynccontextmanager
async def engine(port: int, **options: Any) -> AsyncIterator[MqttSessions]:
    address = TargetAddress(options.pop("host", "127.0.0.1"), port, tls=options.pop("tls", None))
    made = MqttSessions(address, **({"connect_timeout_s": TIMEOUT_S} | options))
    try:
        yield made
    finally:
        await made.close()


class Onlooker:
    """paho, in a thread of its own: sees what the broker hands on."""

    def __init__(self, client: paho.Client, *filters: str) -> None:
        self.client = client
        self._seen: queue.Queue[tuple[str, bytes, bool]] = queue.Queue()
        client.on_message = lambda _c, _d, message: self._seen.put((message.topic, message.payload, message.retain))
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        client.subscribe([(each, 1) for each in filters])
        assert subscribed.wait(SOON_S)

    async def next(self) -> tuple[str, bytes, bool]:
        return await asyncio.to_thread(self._seen.get, timeout=SOON_S)

    async def tell(self, topic: str, payload: bytes) -> None:
        info = self.client.publish(topic, payload, qos=1)
        await asyncio.to_thread(info.wait_for_publish, SOON_S)


@contextmanager
def onlooker(broker: Mosquitto, *filters: str, **options: Any) -> Iterator[Onlooker]:
    client = broker.client("onlooker", **options)
    try:
        yield Onlooker(client, *filters)
    finally:
        end_client(client)


def run(work: Callable[[], Any]) -> None:
    uvloop.run(work())


def test_a_command_comes_again_until_it_is_acknowledged_also_after_a_power_cut(start_mosquitto):
    broker = start_mosquitto()
    topic = topics.command("d1", "c1")

    async def work() -> None:
        async with engine(broker.port) as made:
            with onlooker(broker, topics.status("d1")) as seen:
                device = Device(made, 0, "d1")
                await device.stand()
                device.loses_power = True
                await seen.tell(topic, b'{"id":"c1"}')
                await device.until(lambda: device.arrivals)
                assert await seen.next() == (topics.status("d1"), b"offline", False)  # the will

                device.loses_power = False
                await device.stand()
                await device.until(lambda: len(device.arrivals) == 2)
                # The broker has it once what came after it is acknowledged, too.
                device.publish(topics.sensor_data("d1"))
                await device.until(lambda: device.codes)
                made.cut(0)

                await device.stand()
                await seen.tell(topics.command("d1", "c2"), b"{}")
                await device.until(lambda: len(device.arrivals) > 2)
                first = topic, b'{"id":"c1"}'
                assert device.arrivals == [first, first, (topics.command("d1", "c2"), b"{}")]

    run(work)


def test_the_rules_of_broker_config_hold_for_virtual_devices(start_mosquitto, tmp_path: Path):
    settings = BrokerSettings(tmp_path / "conf", tmp_path / "own", user="nobody", standalone=True)
    write_broker_config(settings, {"d1": mosquitto_password("right", b"0" * 12)}, "gateway", Secret("g"))
    lines = [line for line in settings.configuration.read_text().splitlines() if line and not line.startswith("list")]
    broker = start_mosquitto(*lines)

    async def work() -> None:
        async with engine(broker.port) as made:
            stranger, device = Device(made, 0, "d1", token="wrong"), Device(made, 1, "d1", token="right")
            stranger.open()
            error, outcome = await stranger.lose()
            assert isinstance(error, LockedOut)
            assert outcome is OutcomeClass.REFUSED
            await device.stand()
            device.publish(topics.sensor_data("d2"))
            device.publish(topics.sensor_data("d1"))
            await device.until(lambda: len(device.codes) == 2)
            assert sorted(device.codes) == [0x10, 0x87]  # nobody listens; not authorized

    run(work)


def test_all_sessions_share_one_tls_context(start_mosquitto, tmp_path: Path):
    authority = Authority(tmp_path / "tls")
    server = authority.issue("server")
    broker = start_mosquitto(
        f"cafile {authority.certificate}", f"certfile {server.certificate}", f"keyfile {server.key}"
    )
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    strangers = ssl.create_default_context(cafile=str(Authority(tmp_path / "other").certificate))

    async def work() -> None:
        async with engine(broker.port, tls=trusting, host="localhost") as made:
            devices = [Device(made, n, f"d{n}") for n in range(5)]
            for device in devices:
                device.open()
            for device in devices:
                await device.until(lambda device=device: device.connections)
                device.publish(topics.sensor_data(device.name), b"x" * 100_000)
            for device in devices:
                await device.until(lambda device=device: device.codes)
        async with engine(broker.port, tls=strangers, host="localhost") as made:
            device = Device(made, 0, "d1")
            device.open()
            error, outcome = await device.lose()
            assert "certificate" in str(error)
            assert outcome is OutcomeClass.TRANSPORT
        async with engine(broker.port) as made:
            device = Device(made, 0, "d1")
            device.open()
            assert "TLS" in str((await device.lose())[0])

    run(work)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid", "x" * 300])
def test_a_broker_that_cannot_be_reached_is_a_sentence(host, monkeypatch):
    async def work() -> None:
        async with engine(free_port(), host=host) as made:
            device = Device(made, 0, "d1")
            device.open()
            error, outcome = await device.lose()
            assert outcome is OutcomeClass.TRANSPORT
            assert host in str(error)

    run(work)
