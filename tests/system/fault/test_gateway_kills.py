"""Devices write through a gateway that is killed, whose broker is, or whose service is away: all arrives, and once."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest
import yaml

from agent.wire import topics
from gateway.client import RegisterDevice
from gateway.tokens import FILE_NAME, Tokens, make_token
from simulator.wire.models import NewProduct
from tests.conftest import require_program
from tests.support.mosquitto import end_client, find_mosquitto
from tests.system.fault.gateway_rig import GatewayRig

_log = logging.getLogger(__name__)
pytestmark = pytest.mark.long

KILLS = int(os.environ.get("GATEWAY_KILLS", "10"))
DEVICES = int(os.environ.get("GATEWAY_DEVICES", "40"))
AWAY_S = float(os.environ.get("GATEWAY_AWAY_S", "10"))
_GROWTH_BYTES = 24 * 1024 * 1024
_RESEND_S = 2.0
_SOON_S = 300.0
_AT_ONCE = 5  # readings that a device has under way


class Device(threading.Thread):
    """Sends readings with a number, one or several at once under keys, each until it is acknowledged.

    Attributes:
        sent: how many; their numbers are 0, 1, ...
        ending: set: it ends once all that was sent is acknowledged.
    """

    def __init__(self, device_id: str, pause_s: float) -> None:
        super().__init__(name=f"{type(self).__name__} {device_id}", daemon=True)
        self.device_id = device_id
        self.sent = 0
        self.ending = threading.Event()
        self._pause_s = pause_s

    def run(self) -> None:
        chance = random.Random(self.device_id)
        while not self.ending.is_set():
            numbers = range(self.sent, self.sent + chance.choice((1, 1, _AT_ONCE)))
            self.sent = numbers.stop
            while not self.deliver(numbers):
                pass
            self.ending.wait(self._pause_s)

    def deliver(self, numbers: range) -> bool:
        """Send them once; whether they are acknowledged."""
        raise NotImplementedError

    def close(self) -> None:
        """Give its connections back."""
        raise NotImplementedError


class HttpDevice(Device):
    """Posts them, and waits as it is told."""

    def __init__(self, rig: GatewayRig, device_id: str, token: str, pause_s: float) -> None:
        super().__init__(device_id, pause_s)
        self._url = f"http://127.0.0.1:{rig.http_port}/sensor-data"
        self._http = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=10, trust_env=False)

    def deliver(self, numbers: range) -> bool:
        items = [{"device_id": self.device_id, "sensor_data": {"n": number}} for number in numbers]
        body = items if len(items) > 1 else items[0]
        try:
            answer = self._http.post(self._url, json=body, headers={"Idempotency-Key": f"k-{numbers.start}"})
        except httpx.HTTPError:
            time.sleep(0.1)
            return False
        assert answer.status_code in {200, 201, 429, 503}, answer.text
        assert answer.status_code != 200 or answer.json()["errors"] == []
        if answer.status_code >= 300:
            time.sleep(min(_RESEND_S, float(answer.headers["retry-after"])))
        return answer.status_code < 300

    def close(self) -> None:
        self._http.close()


class MqttDevice(Device):
    """Publishes them, and waits for a receipt that names all keys."""

    def __init__(self, rig: GatewayRig, device_id: str, _token: str, pause_s: float) -> None:
        super().__init__(device_id, pause_s)
        self._stored: set[str] = set()
        self._changed = threading.Condition()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, device_id, protocol=paho.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe(topics.receipts(device_id), 1)
        self._client.on_message = self._receipt
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", rig.broker.port)
        self._client.loop_start()

    def deliver(self, numbers: range) -> bool:
        keys = {f"r-{number}" for number in numbers}
        items = [{"sensor_data": {"n": number}, "key": f"r-{number}"} for number in numbers]
        self._client.publish(topics.sensor_data(self.device_id), json.dumps(items), 1)
        with self._changed:
            return self._changed.wait_for(lambda: keys <= self._stored, _RESEND_S)

    def close(self) -> None:
        end_client(self._client)

    def _receipt(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        receipt = json.loads(message.payload)
        assert not receipt["refused"], receipt
        with self._changed:
            self._stored |= set(receipt["stored"])
            self._changed.notify_all()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[GatewayRig]:
    with GatewayRig(tmp_path, find_mosquitto() or require_program("mosquitto")) as rig:
        yield rig


@contextlib.contextmanager
def writing(rig: GatewayRig, count: int, pause_s: float) -> Iterator[Sequence[Device]]:
    """So many devices, every other one over MQTT, at a gateway that is started here."""
    with rig.client() as client:
        product_id = client.create_product(NewProduct(name="Meter")).product_id
        labels = [
            RegisterDevice(user_id="me", product_id=product_id, device_identifier=f"SN-{number}")
            for number in range(count)
        ]
        new = {client.register_device(label).device_id: make_token() for label in labels}
    with Tokens(rig.folder / "gateway" / FILE_NAME) as tokens:
        tokens.issue(new)
    rig.start_gateway()
    rig.wait_for_gateway()
    devices = [
        (MqttDevice if number % 2 else HttpDevice)(rig, device_id, token.reveal(), pause_s)
        for number, (device_id, token) in enumerate(new.items())
    ]
    for device in devices:
        device.start()
    try:
        yield devices
    finally:
        for device in devices:
            device.close()


def judge(rig: GatewayRig, devices: Sequence[Device], *, twice_at_most: int) -> None:
    """Once all is acknowledged: each reading is at the service, and none twice."""
    until_s = time.monotonic() + _SOON_S
    for device, more in [(device, device.sent + 5) for device in devices]:
        while device.sent < more:
            assert device.is_alive(), f"{device.name} has failed"
            assert time.monotonic() < until_s, f"{device.name} did not go on"
            time.sleep(0.1)
    for device in devices:
        device.ending.set()
    for device in devices:
        device.join(max(0.0, until_s - time.monotonic()))
        assert not device.is_alive(), f"{device.name}: something was never acknowledged"
    with rig.client() as client:
        for device in devices:
            records = client.sensor_data(device_id=device.device_id)
            found = Counter(int(each.sensor_data["n"]) for each in records)
            twice = found.total() - len(found)
            _log.info("%s: %d acknowledged, %d twice", device.name, device.sent, twice)
            assert found.keys() == set(range(device.sent)), "acknowledged and lost"
            assert twice <= twice_at_most, "stored twice"


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.timeout(_SOON_S + 5 * KILLS)
def test_what_gateway_and_broker_acknowledged_is_at_the_service_and_once(rig: GatewayRig, has_keys: bool) -> None:
    """Before a plain server too, where what was under way at a kill may be stored twice, and nothing else."""
    chance = random.Random(KILLS)
    if not has_keys:
        path = rig.folder / "gateway.yaml"
        config = yaml.safe_load(path.read_text())
        config["service"]["dialect"] = {"extensions": []}
        path.write_text(yaml.safe_dump(config))
    with writing(rig, 2, 0.01) as devices:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 1.5))
            if chance.random() < 0.7:
                rig.gateway.kill()
                rig.start_gateway()
            else:
                rig.broker.kill()
                rig.broker.start()
        rig.wait_for_gateway()
        judge(rig, devices, twice_at_most=0 if has_keys else _AT_ONCE * KILLS)


@pytest.mark.timeout(_SOON_S + AWAY_S + 60)
def test_what_devices_read_while_the_service_is_away_arrives_and_the_gateway_keeps_nothing(rig: GatewayRig) -> None:
    with writing(rig, DEVICES, 0.5) as devices:
        time.sleep(3.0)
        rig.service.kill()
        sizes: list[int] = []
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            time.sleep(AWAY_S / 20)
            pages = int(Path(f"/proc/{rig.gateway.pid}/statm").read_text().split()[1])
            sizes.append(pages * os.sysconf("SC_PAGE_SIZE"))
        rig.start_service()
        judge(rig, devices, twice_at_most=0)
        growth = max(sizes) - sizes[len(sizes) // 4]
        _log.info("%d devices: %d MiB, %d KiB more", DEVICES, max(sizes) >> 20, growth >> 10)
        assert growth < _GROWTH_BYTES
