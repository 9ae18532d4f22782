"""The MQTT front on a real mosquitto, before a scripted service: acknowledged is what the service has."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest

from agent.wire import topics
from agent.wire.topics import TopicKind
from gateway.config import MqttFrontConfig
from gateway.mqtt import MqttFront, check_broker_port
from tests.support.mosquitto import Mosquitto, end_client
from tests.support.ports import free_port
from tests.support.scripted_service import GatewayBench, ScriptedService, running_gateway

SOON_S = 60.0
DEVICE = "d1"
pytestmark = pytest.mark.anyio


class Device:
    """A device that writes down what comes; its clock of receipts is the test's."""

    def __init__(self, broker: Mosquitto) -> None:
        self.arrived: list[tuple[TopicKind, Any]] = []
        self.client = broker.client(DEVICE)
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.on_message = self._arrived
        wanted = (topics.commands_filter(DEVICE), topics.receipts(DEVICE), topics.notice(DEVICE), topics.GATEWAY_STATUS)
        self.client.subscribe([(each, 1) for each in wanted])
        assert subscribed.wait(SOON_S)

    def publish(self, topic: str, value: Any, *, retain: bool = False) -> None:
        payload = value if isinstance(value, bytes) else json.dumps(value)
        self.client.publish(topic, payload, 1, retain).wait_for_publish(SOON_S)

    def of(self, kind: TopicKind) -> list[Any]:
        return [value for each, value in self.arrived if each is kind]

    def stored(self) -> list[str]:
        return [key for receipt in self.of(TopicKind.RECEIPTS) for key in receipt["stored"]]

    def _arrived(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        kind = TopicKind.STATUS if message.topic == topics.GATEWAY_STATUS else topics.parse(message.topic).kind
        self.arrived.append((kind, json.loads(message.payload)))


class Bench:
    """A gateway's MQTT front, and a device."""

    def __init__(self, gateway: GatewayBench, front: MqttFront, device: Device) -> None:
        self.gateway = gateway
        self.front = front
        self.device = device

    async def publish(self, topic: str, value: Any, **options: Any) -> None:
        await asyncio.to_thread(self.device.publish, topic, value, **options)

    async def until(self, is_so: Callable[[], Any], within_s: float = SOON_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not is_so():
            stored = sorted(each["sensor_data"]["t"] for each in self.gateway.scripted.readings)
            assert time.monotonic() < deadline_s, (stored, self.device.stored(), dict(self.front.counts))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def bench(
    folder: Path, broker: Mosquitto, service: ScriptedService, *, version: str = "5", **sections: Any
) -> AsyncIterator[Bench]:
    async with running_gateway(folder, service, **sections) as gateway:
        config = MqttFrontConfig.model_validate({"enabled": True, "port": broker.port, "version": version})
        front = MqttFront(config, gateway.service, gateway.uplink, gateway.commands, gateway.tokens)
        device = Device(broker)
        made = Bench(gateway, front, device)
        front.start()
        try:
            await made.until(lambda: front.state()[0] == "ok")
            yield made
        finally:
            await front.stop()
            end_client(device.client)


@pytest.fixture
def broker(start_mosquitto: Callable[..., Mosquitto]) -> Mosquitto:
    return start_mosquitto("allow_anonymous true", "max_inflight_messages 1000")


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_a_receipt_says_what_the_service_has_and_what_it_never_will(broker, tmp_path, version):
    service = ScriptedService()

    async with bench(tmp_path, broker, service, version=version) as it:
        readings = [
            {"sensor_data": {"t": 1}, "key": "a", "recorded_at": "2026-01-01T00:00:00Z"},
            {"sensor_data": {"t": True}, "key": "b"},
            {"sensor_data": {"bad": 1}, "key": "c"},
        ]
        for number in (1, 2):  # the same again is confirmed again, and stored once
            await it.publish(topics.sensor_data(DEVICE), readings)
            await it.until(lambda number=number: len(it.device.of(TopicKind.RECEIPTS)) == number)
        for receipt in it.device.of(TopicKind.RECEIPTS):
            assert receipt["stored"] == ["a"]
            assert {each["key"] for each in receipt["refused"]} == {"b", "c"}
        await it.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 2}})
        await it.until(lambda: len(service.readings) == 2)
        await it.publish(topics.sensor_data(DEVICE), b"{no json")
        await it.until(lambda: len(it.device.of(TopicKind.RECEIPTS)) == 3)
        assert it.device.of(TopicKind.RECEIPTS)[-1]["refused"][0]["error"] == "invalid_json"
        await it.publish(topics.sensor_data("stranger"), {"sensor_data": {"t": 9}})
        await it.until(lambda: it.front.counts["unknown_device"])

    assert [each["sensor_data"]["t"] for each in service.readings] == [1, 2]


async def test_while_the_service_is_away_messages_stay_with_the_broker_and_go_out_afterwards(broker, tmp_path):
    """Also over a gateway that is killed meanwhile: nothing was acknowledged, so the broker sends it again."""
    service = ScriptedService()

    def away(request: httpx.Request):
        if request.url.path == "/.well-known/device-service":
            return
        raise httpx.ConnectError("refused")

    def held() -> list[float]:
        return [each["retry_after_s"] for each in it.device.of(TopicKind.NOTICE) if "retry_after_s" in each]

    service.script = away
    async with bench(tmp_path, broker, service) as it:
        for number in range(30):
            await it.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": number}, "key": f"k{number}"})
        await it.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 30}})
        await it.until(lambda: it.front.counts["held_back"] >= 31)
        await it.until(held)  # it travels as the readings do, and is not acknowledged
        assert held() == [60.0], "one notice, so that the device fills its own outbox and not the queue"
        assert it.device.stored() == []
    assert service.readings == []
    service.script = lambda _request: None
    async with bench(tmp_path, broker, service) as it:
        await it.until(lambda: len(service.readings) == 31)
        await it.until(lambda: sorted(it.device.stored()) == sorted(f"k{number}" for number in range(30)))
    assert sorted(each["sensor_data"]["t"] for each in service.readings) == list(range(31))


async def test_commands_go_to_a_device_that_comes_and_when_they_are_sent_but_never_after_their_end(broker, tmp_path):
    service = ScriptedService()
    service.send(DEVICE, "c/1")
    service.send(DEVICE, "over", expires_at="2020-01-01T00:00:00Z")

    def ids(it: Bench) -> list[str]:
        return [each["id"] for each in it.device.of(TopicKind.COMMAND) if each["status"] == "queued"]

    async with bench(tmp_path, broker, service, commands={"poll_s": 0.1}) as it:
        assert service.count("GET", f"/devices/{DEVICE}/commands") == 0, "it is not there"
        await it.publish(topics.status(DEVICE), b"online", retain=True)
        await it.until(lambda: ids(it) == ["c/1"])
        assert it.device.of(TopicKind.NOTICE)[0]["time"] is not None
        service.send(DEVICE, "c2")
        await it.until(lambda: ids(it) == ["c/1", "c2"])
        service.commands[DEVICE][-1]["status"] = "canceled"
        await it.until(lambda: [e["id"] for e in it.device.of(TopicKind.COMMAND)][-1:] == ["c2"], 20)
        await it.until(lambda: it.device.of(TopicKind.COMMAND)[-1]["status"] == "canceled")
        result = {"status": "succeeded", "key": "r"}
        await it.publish(topics.result(DEVICE, "c/1"), result)
        await it.until(lambda: it.device.stored() == ["r"])
        assert service.results[DEVICE, "c/1"] == [{"status": "succeeded"}]
        await it.publish(topics.result(DEVICE, "made-up"), {"status": "failed", "key": "x"})
        await it.until(lambda: it.device.of(TopicKind.RECEIPTS)[-1]["refused"])
        await it.publish(topics.status(DEVICE), b"offline", retain=True)
        await it.publish(topics.status(DEVICE), b"perhaps")
        await it.until(lambda: it.front.counts["bad_status"])
        asked = service.count("GET", f"/devices/{DEVICE}/commands")
        await asyncio.sleep(0.5)
        assert service.count("GET", f"/devices/{DEVICE}/commands") <= asked + 1
    await asyncio.sleep(0.2)
    assert it.device.of(TopicKind.STATUS)[-1] == {"status": "offline"}, "the gateway says that it leaves"


async def test_a_command_that_was_canceled_while_the_gateway_was_cut_off_is_taken_back(broker, tmp_path):
    service = ScriptedService()
    service.send(DEVICE, "c1")
    # In this version the broker does not say that a session was taken over, so it is soon tried again.
    async with bench(tmp_path, broker, service, version="3.1.1", commands={"poll_s": 0.1}) as it:
        await it.publish(topics.status(DEVICE), b"online", retain=True)
        await it.until(lambda: it.device.of(TopicKind.COMMAND))
        other = broker.client(it.front.config.user_name)
        try:
            await it.until(lambda: it.front.state()[0] != "ok")
            service.commands[DEVICE][-1]["status"] = "canceled"
            await it.until(lambda: not it.gateway.commands.known(DEVICE))
        finally:
            end_client(other)
        await it.until(lambda: it.device.of(TopicKind.COMMAND)[-1]["status"] == "canceled")


async def test_after_a_restart_the_gateway_knows_who_is_there(broker, tmp_path):
    service = ScriptedService()
    service.send(DEVICE, "c1")

    for count in (1, 2):
        async with bench(tmp_path, broker, service) as it:
            if count == 1:
                await it.publish(topics.status(DEVICE), b"online", retain=True)
            await it.until(lambda it=it: len(it.device.of(TopicKind.COMMAND)) >= 1)


async def test_retained_readings_are_stored_once(broker, tmp_path):
    service = ScriptedService()
    for count in (1, 2, 3):
        async with bench(tmp_path, broker, service) as it:
            await it.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": count}}, retain=count == 1)
            await it.until(lambda count=count: len(service.readings) == count)
    assert [each["sensor_data"]["t"] for each in service.readings] == [1, 2, 3]


async def test_a_revoked_device_is_served_no_more_and_a_new_one_at_once(broker, tmp_path):
    service = ScriptedService()

    async with bench(tmp_path, broker, service) as it:
        it.gateway.tokens.revoke(DEVICE)
        await it.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 1}})
        await it.until(lambda: it.front.counts["unknown_device"] == 1)
        it.gateway.issue(DEVICE)
        await it.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 2}})
        await it.until(lambda: len(service.readings) == 1)


def test_a_broker_that_is_not_there_or_refuses_is_told(start_mosquitto, tmp_path):
    closed = MqttFrontConfig.model_validate({"enabled": True, "port": free_port()})
    assert "nobody listens" in str(check_broker_port(closed))
    strict = start_mosquitto("allow_anonymous false")
    refused = MqttFrontConfig.model_validate({"enabled": True, "port": strict.port})
    assert "mqtt.password_file" in str(check_broker_port(refused))
    open_to_all = start_mosquitto("allow_anonymous true")
    assert check_broker_port(MqttFrontConfig.model_validate({"enabled": True, "port": open_to_all.port})) is None
