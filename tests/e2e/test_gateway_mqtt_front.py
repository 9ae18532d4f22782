"""The MQTT front on a real mosquitto: what is acknowledged is stored, what is open is published, trouble is told."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.reasoncodes import ReasonCode

from agent.adapters.clocks import SystemClock
from agent.wire import topics
from agent.wire.times import to_rfc3339
from gateway.backend import Backend
from gateway.command_cache import CommandCache
from gateway.mqtt.broker_config import LIMITS
from gateway.mqtt.front import MqttFront, MqttSettings, check_broker_port
from gateway.ports import Hints
from gateway.store.schema import FILE_NAME
from gateway.store.service import StoreWriter
from gateway.store.values import ListRead, StoreBounds, StoredCommand
from tests.mosquitto import Mosquitto, end_client
from tests.ports import free_port

SOON_S = 60.0
DEVICE = "d1"


class Bench:
    """A front on a broker, and a device that writes down what comes."""

    def __init__(self, broker: Mosquitto, folder: Path, bounds: StoreBounds, device_id: str, **settings: Any) -> None:
        self.broker = broker
        folder.mkdir()
        clock = SystemClock()
        self.store = StoreWriter(folder / FILE_NAME, clock=clock, bounds=bounds)
        self.store.start()
        self.hints = Hints(60.0)
        self.served = {DEVICE}
        self.soon_served: set[str] = set()
        self.backend = Backend(self.store, CommandCache(time.time), clock, hints=lambda _: self.hints)
        self.front = MqttFront(
            MqttSettings("127.0.0.1", broker.port, f"gateway-of-{device_id}", **settings),
            self.backend,
            serves=self._serves,
            devices=lambda: self.served,
            clock=clock,
            fraction=lambda: 0.01,
        )
        self.front.start()
        self.arrived: list[tuple[topics.TopicKind, Any]] = []
        self._changed = threading.Condition()
        self._device_id = device_id
        self.device = self._join()
        self.wait_until(lambda: self.front.status().state == "connected")

    def publish(self, topic: str, value: Any) -> None:
        self.device.publish(topic, value if isinstance(value, bytes) else json.dumps(value), 1).wait_for_publish(SOON_S)

    def open(self, *command_ids: str, **members: Any) -> None:
        self.list([StoredCommand(DEVICE, each, {"id": each, **members}) for each in command_ids])

    def list(self, commands: list[StoredCommand], canceled: Sequence[StoredCommand] = ()) -> None:
        """The service lists these and no others."""
        self.backend.take_listed(DEVICE, commands, ListRead())
        self.backend.finish_list(DEVICE, {each.id for each in commands}, ListRead(), canceled)

    def of(self, kind: topics.TopicKind) -> list[Any]:
        return [value for each, value in self.arrived if each is kind]

    def wait_until(self, is_so: Callable[[], Any], within_s: float = SOON_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline_s, (self.arrived, self.front.status())
            time.sleep(0.02)

    def stats(self) -> Any:
        return self.store.call(lambda store: store.stats())

    def forward(self) -> None:
        """As if the service had taken everything."""
        batch = self.store.call(lambda store: store.readings.next_batch(500, time.time()))
        self.store.call(lambda store: store.readings.batch_stored(batch, {}, time.time()))

    def close(self) -> None:
        end_client(self.device)
        assert self.front.stop(60)
        assert self.store.stop(60)

    def _serves(self, device_id: str) -> bool:
        found = device_id in self.served
        if device_id in self.soon_served:
            self.served.add(device_id)  # when it is asked for again
        return found

    def _join(self) -> paho.Client:
        client = self.broker.client(self._device_id)
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_message = self._arrived
        client.subscribe(
            [(topics.commands_filter(DEVICE), 1), (topics.receipts(DEVICE), 1), (topics.notice(DEVICE), 0)]
        )
        assert subscribed.wait(SOON_S)
        return client

    def _arrived(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self.arrived.append((topics.parse(message.topic).kind, json.loads(message.payload)))


@pytest.fixture
def make_bench(start_mosquitto, tmp_path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(
        bounds: StoreBounds | None = None,
        broker_settings: Sequence[str] = (),
        broker: Mosquitto | None = None,
        device_id: str = DEVICE,
        **settings: Any,
    ) -> Bench:
        folder = tmp_path / f"gateway-{len(made)}"
        at = broker or start_mosquitto(*broker_settings)
        made.append(Bench(at, folder, bounds or StoreBounds(), device_id, **settings))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_what_gets_a_receipt_is_stored_and_a_repeat_gets_another_one(make_bench, version):
    bench = make_bench(version=version)
    for _ in range(2):
        bench.publish(
            topics.sensor_data(DEVICE),
            [{"sensor_data": {"t": 1}, "key": "a"}, {"sensor_data": {"t": True}, "key": "b"}],
        )
    # What is committed together may share one receipt.
    bench.wait_until(lambda: sum(len(each["refused"]) for each in bench.of(topics.TopicKind.RECEIPTS)) == 2)
    for receipt in bench.of(topics.TopicKind.RECEIPTS):
        assert receipt["stored"] == ["a"]
        assert {each["key"] for each in receipt["refused"]} == {"b"}
    assert bench.stats().readings == 1


def test_three_thousand_readings_sent_at_once_get_every_receipt(make_bench):
    bench = make_bench(broker_settings=LIMITS)
    for number in range(3000):
        bench.device.publish(
            topics.sensor_data(DEVICE), json.dumps({"sensor_data": {"t": number}, "key": str(number)}), 1
        )
    told: set[str] = set()

    def all_told() -> bool:
        while bench.arrived:
            kind, value = bench.arrived.pop()
            if kind is topics.TopicKind.RECEIPTS:
                told.update(value["stored"])
        return len(told) == 3000

    bench.wait_until(all_told, 60.0)
    assert bench.stats().readings == 3000


def test_a_gateway_that_starts_greets_its_devices_so_that_they_need_not_back_off(make_bench):
    bench = make_bench()
    bench.wait_until(lambda: bench.of(topics.TopicKind.NOTICE))
    assert set(bench.of(topics.TopicKind.NOTICE)[0]) == {"time", "poll_s"}


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_what_a_device_said_before_the_gateway_came_is_no_news(make_bench, start_mosquitto, version):
    broker = start_mosquitto()
    early = broker.client("early")
    early.publish(topics.status(DEVICE), "online", 1, retain=True).wait_for_publish(SOON_S)
    end_client(early)
    bench = make_bench(broker=broker, version=version)
    bench.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 1}, "key": "k"})
    bench.wait_until(lambda: bench.of(topics.TopicKind.RECEIPTS))
    assert bench.front.status().counts["messages"] == (1 if version == "5" else 2)
    assert bench.backend.online(60.0) == 1


def test_a_full_store_sends_no_receipt_and_takes_what_has_no_key_as_soon_as_there_is_room(make_bench):
    bench = make_bench(StoreBounds(max_rows=1))
    bench.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 1}})
    bench.wait_until(lambda: bench.stats().readings == 1)
    bench.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 2}, "key": "k"})
    bench.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": 3}})
    bench.wait_until(lambda: bench.front.status().counts.get("store_refused", 0) >= 2)
    bench.wait_until(lambda: bench.front.status().counts["held_back"] == 1)
    assert bench.of(topics.TopicKind.RECEIPTS) == []
    bench.forward()
    bench.wait_until(lambda: bench.stats().readings == 1)
    assert bench.store.call(lambda s: s.readings.next_batch(1, time.time())).items[0]["sensor_data"] == {"t": 3}


def test_an_open_command_is_published_once_and_again_when_its_device_comes_back(make_bench):
    bench = make_bench()
    bench.open("c1", expires_at=to_rfc3339(time.time() + 60))
    bench.wait_until(lambda: bench.of(topics.TopicKind.COMMAND))
    bench.open("c1", "c2")
    bench.wait_until(lambda: len(bench.of(topics.TopicKind.COMMAND)) >= 2)
    assert [each["id"] for each in bench.of(topics.TopicKind.COMMAND)] == ["c1", "c2"]
    bench.publish(topics.status(DEVICE), {"status": "online", "firmware_version": "1.2"})
    bench.wait_until(lambda: len(bench.of(topics.TopicKind.COMMAND)) == 4)
    assert bench.of(topics.TopicKind.NOTICE)[0]["poll_s"] == 60
    bench.publish(topics.result(DEVICE, "c1"), {"status": "succeeded", "key": "r"})
    bench.wait_until(lambda: bench.of(topics.TopicKind.RECEIPTS))
    assert [record["id"] for record in bench.backend.open_commands(DEVICE).records] == ["c2"]


def test_a_canceled_command_is_taken_back_on_its_topic_and_one_that_expired_is_not(make_bench):
    bench = make_bench()
    bench.open("c1", "c2", "c3")
    bench.wait_until(lambda: len(bench.of(topics.TopicKind.COMMAND)) == 3)
    canceled = StoredCommand(DEVICE, "c1", {"id": "c1", "status": "canceled"}, is_open=False)
    bench.list([StoredCommand(DEVICE, "c3", {"id": "c3"})], [canceled])
    bench.wait_until(lambda: len(bench.of(topics.TopicKind.COMMAND)) == 4)
    assert bench.of(topics.TopicKind.COMMAND)[-1] == {"id": "c1", "status": "canceled"}
    bench.open("c3", "c4")
    bench.wait_until(lambda: len(bench.of(topics.TopicKind.COMMAND)) == 5)
    assert [each["id"] for each in bench.of(topics.TopicKind.COMMAND)] == ["c1", "c2", "c3", "c1", "c4"], "told once"


def test_after_a_broker_lost_everything_what_is_open_is_published_again(make_bench):
    bench = make_bench()
    bench.open("c1")
    bench.wait_until(lambda: bench.of(topics.TopicKind.COMMAND))
    bench.broker.kill()
    bench.wait_until(lambda: bench.front.status().state != "connected")
    end_client(bench.device)
    bench.broker.start()
    bench.device = bench._join()
    # The gateway may have been back before it; a device says that it is there.
    bench.publish(topics.status(DEVICE), {"status": "online"})
    bench.wait_until(lambda: len(bench.of(topics.TopicKind.COMMAND)) >= 2)


def test_a_device_whose_token_is_a_moment_old_loses_nothing_and_a_stranger_is_dropped_and_counted(make_bench):
    bench = make_bench()
    bench.soon_served.add("new")
    bench.publish(topics.sensor_data("new"), {"sensor_data": {"t": 1}})
    bench.publish(topics.sensor_data("stranger"), {"sensor_data": {"t": 1}})
    bench.wait_until(lambda: bench.front.status().counts.get("unknown_device") == 1)
    bench.wait_until(lambda: bench.stats().readings == 1)
    assert bench.served == {DEVICE, "new"}


def test_a_device_is_told_when_the_quota_is_short_but_not_with_every_message(make_bench):
    bench = make_bench()
    bench.hints = Hints(60.0, quota_used_up=True)
    for number in range(3):
        bench.publish(topics.sensor_data(DEVICE), {"sensor_data": {"t": number}})
    bench.wait_until(lambda: bench.stats().readings == 3)
    bench.wait_until(lambda: bench.of(topics.TopicKind.NOTICE))
    assert [notice["retry_after_s"] for notice in bench.of(topics.TopicKind.NOTICE)] == [60]


def test_a_device_that_says_online_without_end_leaves_nothing_in_memory(make_bench):
    bench = make_bench(broker_settings=("allow_anonymous true", "max_queued_messages 0"))
    before = reason_codes()
    for _ in range(2000):
        bench.device.publish(topics.status(DEVICE), b"online", 1)
    bench.wait_until(lambda: len(bench.of(topics.TopicKind.NOTICE)) >= 2000)
    assert reason_codes() - before < 200


def reason_codes() -> int:
    """How many acknowledgements are in memory."""
    gc.collect()
    return sum(isinstance(each, ReasonCode) for each in gc.get_objects())


def test_a_second_gateway_with_the_same_client_id_is_seen_and_told(make_bench, caplog):
    bench = make_bench()
    other = bench.broker.client(f"gateway-of-{DEVICE}")
    bench.wait_until(lambda: "another client takes the gateway's client id" in caplog.text)
    end_client(other)
    bench.wait_until(lambda: bench.front.status().state == "connected")
    assert caplog.text.count("mqtt=taken_over") == 1


def test_the_check_says_why_the_broker_cannot_be_used(start_mosquitto):
    nobody = check_broker_port(MqttSettings("127.0.0.1", free_port(), "check"))
    assert nobody is not None
    assert "nobody listens" in nobody
    assert check_broker_port(MqttSettings("127.0.0.1", start_mosquitto().port, "check")) is None
