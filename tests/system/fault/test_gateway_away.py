"""The service is away while many devices go on reading: all arrives afterwards, and the gateway grows by nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest

from agent.wire import topics
from gateway.client import RegisterDevice
from gateway.tokens import FILE_NAME, Tokens, make_token
from simulator.wire.models import NewProduct
from tests.conftest import require_program
from tests.support.mosquitto import end_client, find_mosquitto
from tests.system.fault.gateway_rig import GatewayRig

_log = logging.getLogger(__name__)
pytestmark = pytest.mark.long

DEVICES = int(os.environ.get("GATEWAY_DEVICES", "100"))
AWAY_S = float(os.environ.get("GATEWAY_AWAY_S", "10"))
EVERY_S = float(os.environ.get("GATEWAY_EVERY_S", "3"))
_GROWTH_BYTES = 24 * 1024 * 1024
_SOON_S = 300.0


class Fleet:
    """Devices with an outbox each: a reading stays there until it is acknowledged.

    Attributes:
        taken: device id -> readings so far, whose numbers are 0, 1, ...
        acknowledged: device id -> numbers.
    """

    def __init__(self, rig: GatewayRig, tokens: dict[str, str]) -> None:
        self.rig = rig
        self.tokens = tokens
        self.taken: Counter[str] = Counter()
        self.acknowledged: dict[str, set[int]] = {device_id: set() for device_id in tokens}
        self.is_reading = True
        self._lock = threading.Lock()
        self.mqtt = rig.broker.client("fleet")
        self.mqtt.on_message = self._receipt
        self.mqtt.subscribe("v1/devices/+/receipts", 1)

    async def run(self) -> None:
        """Every other device speaks MQTT; until all is acknowledged once :attr:`is_reading` is False."""
        limits = httpx.Limits(max_connections=100)
        base_url = f"http://127.0.0.1:{self.rig.http_port}"
        async with httpx.AsyncClient(base_url=base_url, limits=limits, timeout=60, trust_env=False) as http:
            await asyncio.gather(
                *(
                    self._over_mqtt(each) if number % 2 else self._over_http(http, each)
                    for number, each in enumerate(self.tokens)
                )
            )

    def _waiting(self, device_id: str) -> list[int]:
        with self._lock:
            return sorted(set(range(self.taken[device_id])) - self.acknowledged[device_id])

    async def _read(self, device_id: str) -> None:
        await asyncio.sleep(random.uniform(0, EVERY_S))
        while self.is_reading:
            self.taken[device_id] += 1
            await asyncio.sleep(EVERY_S)

    async def _over_http(self, http: httpx.AsyncClient, device_id: str) -> None:
        reading = asyncio.ensure_future(self._read(device_id))
        headers = {"Authorization": f"Bearer {self.tokens[device_id]}"}
        batch: list[int] = []
        while not reading.done() or self._waiting(device_id):
            wait_s = min(EVERY_S, 1.0)
            waiting = self._waiting(device_id)
            batch = batch if set(batch) & set(waiting) else waiting  # a repeat is the same as before
            items = [{"device_id": device_id, "sensor_data": {"n": number}} for number in batch]
            key = {"Idempotency-Key": f"{batch[0]}-{batch[-1]}"} if batch else {}
            with contextlib.suppress(httpx.HTTPError):
                answer = await http.post("/sensor-data", json=items, headers=headers | key) if batch else None
                if answer is not None and answer.status_code == 200:
                    assert answer.json()["errors"] == []
                    with self._lock:
                        self.acknowledged[device_id] |= set(batch)
                elif answer is not None:
                    assert answer.status_code in {429, 503}, answer.text
                    wait_s = float(answer.headers["retry-after"]) * random.uniform(1.0, 1.5)
            await asyncio.sleep(wait_s)

    async def _over_mqtt(self, device_id: str) -> None:
        reading = asyncio.ensure_future(self._read(device_id))
        batch: list[int] = []
        while not reading.done() or self._waiting(device_id):
            waiting = self._waiting(device_id)
            batch = batch if set(batch) & set(waiting) else waiting
            if batch:
                items = [{"sensor_data": {"n": number}, "key": f"r-{number}"} for number in batch]
                self.mqtt.publish(topics.sensor_data(device_id), json.dumps(items), 1)
            until_s = time.monotonic() + max(EVERY_S, 10.0)
            while time.monotonic() < until_s and set(batch) & set(self._waiting(device_id)):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            await asyncio.sleep(min(EVERY_S, 1.0))

    def _receipt(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        receipt = json.loads(message.payload)
        assert not receipt["refused"], receipt
        with self._lock:
            numbers = {int(key.removeprefix("r-")) for key in receipt["stored"]}
            self.acknowledged[topics.parse(message.topic).device_id] |= numbers


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(_SOON_S + AWAY_S + 300)
def test_what_devices_read_while_the_service_is_away_arrives_and_the_gateway_keeps_nothing(tmp_path: Path) -> None:
    with GatewayRig(tmp_path, find_mosquitto() or require_program("mosquitto")) as rig:
        with rig.client() as client:
            product_id = client.create_product(NewProduct(name="Meter")).product_id
            ids = [
                client.register_device(
                    RegisterDevice(user_id="me", product_id=product_id, device_identifier=f"SN-{number}")
                ).device_id
                for number in range(DEVICES)
            ]
        new = {device_id: make_token() for device_id in ids}
        with Tokens(tmp_path / "gateway" / FILE_NAME) as tokens:
            tokens.issue(new)
        rig.start_gateway()
        rig.wait_for_gateway()
        fleet = Fleet(rig, {device_id: token.token.reveal() for device_id, token in new.items()})
        sizes: list[int] = []

        running = threading.Thread(target=lambda: asyncio.run(fleet.run()), daemon=True)
        running.start()
        time.sleep(EVERY_S)
        rig.service.kill()
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            time.sleep(AWAY_S / 20)
            sizes.append(_resident_bytes(rig.gateway.pid or 0))
        rig.start_service()
        time.sleep(EVERY_S)
        fleet.is_reading = False
        running.join(_SOON_S)
        assert not running.is_alive(), "something was never acknowledged"
        end_client(fleet.mqtt)
        found: dict[str, Counter[int]] = {}
        with rig.client() as client:
            for record in client.sensor_data():
                if record.device_id in fleet.acknowledged and "n" in record.sensor_data:
                    found.setdefault(record.device_id or "", Counter())[int(record.sensor_data["n"])] += 1
        growth = max(sizes) - sizes[len(sizes) // 4]
        told = f"{DEVICES} devices, {fleet.taken.total()} readings, {max(sizes) >> 20} MiB, {growth >> 10} KiB more"
        _log.info("%s", told)
        for device_id, count in fleet.taken.items():
            assert fleet.acknowledged[device_id] == set(range(count))
            assert found[device_id] == Counter(range(count)), "each of them once"
        assert growth < _GROWTH_BYTES, told
