"""SIGKILL of gateway and broker under writers over HTTP and MQTT: what was acknowledged is there, and there once."""

from __future__ import annotations

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
import yaml

from agent.wire import topics
from gateway.tokens import FILE_NAME, Tokens, make_token
from tests.conftest import require_program
from tests.support.mosquitto import find_mosquitto
from tests.system.fault.gateway_rig import GatewayRig

_log = logging.getLogger(__name__)
pytestmark = pytest.mark.long

KILLS = int(os.environ.get("GATEWAY_KILLS", "10"))
_RESEND_S = 2.0
_AT_ONCE = 5  # readings that a writer has under way


class Writer(threading.Thread):
    """Sends readings with a number and a key, again and again until each is acknowledged.

    Attributes:
        acknowledged: the numbers that were.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: set[int] = set()
        self.sent = 0
        self.ending = threading.Event()


class HttpWriter(Writer):
    """One reading, or several at once, in each request."""

    def __init__(self, url: str, device_id: str, token: str) -> None:
        super().__init__("http-writer")
        self._url = url
        self._device_id = device_id
        self._headers = {"Authorization": f"Bearer {token}"}

    def run(self) -> None:
        chance = random.Random(1)
        while not self.ending.is_set():
            numbers = range(self.sent, self.sent + chance.choice((1, 1, 5)))
            self.sent = numbers.stop
            items = [{"device_id": self._device_id, "sensor_data": {"n": number}} for number in numbers]
            body = items if len(items) > 1 else items[0]
            while not self._post(body, f"k-{numbers.start}"):
                if self.ending.wait(0.1):
                    return
            self.acknowledged |= set(numbers)
            self.ending.wait(0.01)

    def _post(self, body: Any, key: str) -> bool:
        headers = {**self._headers, "Idempotency-Key": key}
        try:
            answer = httpx.post(f"{self._url}/sensor-data", json=body, headers=headers, timeout=10, trust_env=False)
        except httpx.HTTPError:
            return False
        assert answer.status_code in {200, 201, 429, 503}, answer.text
        if answer.status_code == 200:
            assert answer.json()["errors"] == []
        return answer.status_code < 300


class MqttWriter(Writer):
    """Publishes messages of one reading or several, each as it was until the receipt names its keys."""

    def __init__(self, port: int, device_id: str) -> None:
        super().__init__("mqtt-writer")
        self._topic = topics.sensor_data(device_id)
        self._changed = threading.Condition()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, device_id, protocol=paho.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe(topics.receipts(device_id), 1)
        self._client.on_message = self._receipt
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def run(self) -> None:
        chance = random.Random(2)
        while not self.ending.is_set():
            numbers = range(self.sent, self.sent + chance.choice((1, 3)))
            self.sent = numbers.stop
            items = [{"sensor_data": {"n": number}, "key": f"r-{number}"} for number in numbers]
            text = json.dumps(items)
            while not set(numbers) <= self.acknowledged and not self.ending.is_set():
                self._client.publish(self._topic, text, 1)
                with self._changed:
                    self._changed.wait_for(lambda: set(numbers) <= self.acknowledged, _RESEND_S)  # noqa: B023

    def _receipt(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        receipt = json.loads(message.payload)
        assert not receipt["refused"], receipt
        with self._changed:
            self.acknowledged |= {int(key.removeprefix("r-")) for key in receipt["stored"]}
            self._changed.notify_all()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def stored(rig: GatewayRig, device_id: str) -> Counter[int]:
    with rig.client() as client:
        records = client.sensor_data(device_id=device_id)
        return Counter(int(each.sensor_data["n"]) for each in records if "n" in each.sensor_data)


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.timeout(240 + 5 * KILLS)
def test_what_gateway_and_broker_acknowledged_is_at_the_service_and_once(tmp_path: Path, has_keys: bool) -> None:
    """Before a plain server too, where what was under way at a kill may be stored twice, and nothing else."""
    chance = random.Random(KILLS)
    with GatewayRig(tmp_path, find_mosquitto() or require_program("mosquitto")) as rig:
        if not has_keys:
            path = tmp_path / "gateway.yaml"
            config = yaml.safe_load(path.read_text())
            config["service"]["dialect"] = {"extensions": []}
            path.write_text(yaml.safe_dump(config))
        with Tokens(tmp_path / "gateway" / FILE_NAME) as tokens:
            token = make_token()
            tokens.issue({rig.load_device_id: token})
        rig.start_gateway()
        rig.wait_for_gateway()
        http = HttpWriter(f"http://127.0.0.1:{rig.http_port}", rig.load_device_id, token.token.reveal())
        mqtt = MqttWriter(rig.broker.port, rig.device_id)
        for writer in (http, mqtt):
            writer.start()
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 1.5))
            if chance.random() < 0.7:
                rig.gateway.kill()
                rig.start_gateway()
            else:
                rig.broker.kill()
                rig.broker.start()
        deadline_s = time.monotonic() + 120
        for writer in (http, mqtt):
            before = len(writer.acknowledged)
            while len(writer.acknowledged) < max(before + 5, 10):
                assert time.monotonic() < deadline_s, f"{writer.name} did not go on after the last kill"
                time.sleep(0.1)
        for writer in (http, mqtt):
            writer.ending.set()
            writer.join(60)
        mqtt.close()
        for writer, device_id in ((http, rig.load_device_id), (mqtt, rig.device_id)):
            found = stored(rig, device_id)
            twice = sum(count - 1 for count in found.values())
            _log.info("%s: %d kills, %d acknowledged, %d twice", writer.name, KILLS, len(writer.acknowledged), twice)
            assert writer.acknowledged - found.keys() == set(), "acknowledged and lost"
            assert twice <= (0 if has_keys else _AT_ONCE * KILLS), "stored twice"
