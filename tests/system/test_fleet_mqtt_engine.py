"""The fleet's MQTT engine against a broker of somebody else (mosquitto)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
from tests.support.ports import free_port

SOON_S = 60.0


class Device:
    """One client on the engine, and what it is told."""

    def __init__(self, engine: MqttSessions, name: str, *filters: str, token: str = "t") -> None:  # noqa: S107 - it opens nothing
        self.engine, self.name, self.index = engine, name, id(self)
        will = Will(topics.status(name), payload=b"offline", qos=QoS.AT_LEAST_ONCE, retain=True)
        subscriptions = tuple((each, 1) for each in filters or [topics.commands_filter(name)])
        self.opening = Opening(topics.user_name(name), Secret(token), subscriptions, will)
        self.connections = 0
        self.arrivals: list[tuple[str, bytes]] = []
        self.losses: list[tuple[Offline, OutcomeClass]] = []
        self.codes: list[int] = []
        self.loses_power = False  # when a message comes
        self._changed = asyncio.Event()

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(SOON_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def open(self) -> None:
        self.session = self.engine.open(self.index, self.opening, self)

    async def stand(self) -> None:
        count = self.connections
        self.open()
        await self.until(lambda: self.connections > count or self.losses)
        assert self.losses == []

    async def lose(self) -> tuple[Offline, OutcomeClass]:
        self.open()
        await self.until(lambda: self.losses)
        return self.losses[-1]

    async def publish(self, topic: str, payload: bytes = b"{}") -> int:
        """The reason code."""
        count = len(self.codes)
        self.session.publish(topic, payload, self.acknowledged)
        await self.until(lambda: len(self.codes) > count)
        return self.codes[-1]

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
async def engine(port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[MqttSessions]:
    made = MqttSessions(TargetAddress(host, port, tls=tls), connect_timeout_s=SOON_S)
    try:
        yield made
    finally:
        await made.close()


def run(work: Callable[[], Any]) -> None:
    uvloop.run(work())


def test_a_command_comes_again_until_it_is_acknowledged_also_after_a_power_cut(start_mosquitto):
    broker = start_mosquitto()
    first, second = (topics.command("d1", "c1"), b"1"), (topics.command("d1", "c2"), b"2")

    async def work() -> None:
        async with engine(broker.port) as made:
            gateway, device = Device(made, "g", topics.status("d1")), Device(made, "d1")
            await gateway.stand()
            await device.stand()
            device.loses_power = True
            await gateway.publish(*first)
            await gateway.until(lambda: gateway.arrivals)
            assert gateway.arrivals == [(topics.status("d1"), b"offline")], "the will"

            device.loses_power = False
            await device.stand()
            await device.until(lambda: len(device.arrivals) == 2)
            # The broker has its acknowledgement once it acknowledges what came after that.
            await device.publish(topics.sensor_data("d1"))
            made.cut(device.index)

            await device.stand()
            await gateway.publish(*second)
            await device.until(lambda: len(device.arrivals) > 2)
            assert device.arrivals == [first, first, second]

    run(work)


def test_the_rules_of_broker_config_hold_for_virtual_devices(start_mosquitto, tmp_path: Path):
    settings = BrokerSettings(tmp_path / "conf", tmp_path / "own", user="nobody", standalone=True)
    write_broker_config(settings, {"d1": mosquitto_password("right", b"0" * 12)}, "gateway", Secret("g"))
    lines = [line for line in settings.configuration.read_text().splitlines() if line and not line.startswith("list")]
    broker = start_mosquitto(*lines)

    async def work() -> None:
        async with engine(broker.port) as made:
            stranger, device = Device(made, "d1", token="wrong"), Device(made, "d1", token="right")
            error, outcome = await stranger.lose()
            assert isinstance(error, LockedOut)
            assert outcome is OutcomeClass.REFUSED
            await device.stand()
            assert await device.publish(topics.sensor_data("d2")) == 0x87, "not authorized"
            assert await device.publish(topics.sensor_data("d1")) == 0x10, "nobody listens"

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
        async with engine(broker.port, "localhost", trusting) as made:
            for number in range(5):
                device = Device(made, f"d{number}")
                await device.stand()
                assert await device.publish(topics.sensor_data(device.name), b"x" * 100_000) == 0x10
        async with engine(broker.port, "localhost", strangers) as made:
            error, outcome = await Device(made, "d1").lose()
            assert "certificate" in str(error)
            assert outcome is OutcomeClass.TRANSPORT
        async with engine(broker.port) as made:
            assert "TLS" in str((await Device(made, "d1").lose())[0])

    run(work)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid", "x" * 300])
def test_a_broker_that_cannot_be_reached_is_a_sentence(host):
    async def work() -> None:
        async with engine(free_port(), host) as made:
            error, outcome = await Device(made, "d1").lose()
            assert outcome is OutcomeClass.TRANSPORT
            assert host in str(error)

    run(work)
