"""Over MQTT alone the time comes with the gateway's first notice, and what was read before is dated by it."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import pytest

from agent.adapters.mqtt_connection import MqttConnection
from agent.adapters.mqtt_session import Message
from agent.adapters.mqtt_uplink import MqttUplink
from agent.core.timekeeping import TIME_UNKNOWN
from agent.core.values import StoredReading
from agent.runtime.service_clock import ServiceClock
from tests.factories import make_moment, make_reading
from tests.fakes import START_WALL_S, FakeClock


class _Broker:
    """A connection that is up or not, and keeps what is published."""

    max_packet_bytes = 1 << 20

    def __init__(self, *, is_up: bool = True) -> None:
        self._is_up = is_up
        self.looked = threading.Event()
        self.sent: list[list[dict[str, Any]]] = []

    @property
    def is_up(self) -> bool:
        self.looked.set()
        return self._is_up

    def publish(self, message: Message, _timeout_s: float) -> int:
        value = json.loads(message.payload)
        self.sent.append(value if isinstance(value, list) else [value])
        return 0


def build(broker: _Broker, clock: ServiceClock, fake: FakeClock) -> MqttUplink:
    uplink = MqttUplink(cast("MqttConnection", broker), "d1", fake, receipts=False, wall_of=clock.recorded_at)
    clock.on_time_known(uplink.time_is_known)
    return uplink


@pytest.fixture
def fake() -> FakeClock:
    return FakeClock(wall_s=START_WALL_S + 2 * 86_400.0)  # two days ahead


def stored(*monotonic_s: float) -> list[StoredReading]:
    return [StoredReading(n, f"k/{n}", make_reading(at=make_moment(at_s))) for n, at_s in enumerate(monotonic_s)]


def test_the_first_batch_waits_for_the_notice_and_has_its_times(fake):
    told: list[tuple[str, str]] = []
    clock = ServiceClock(fake, on_state=lambda *words: told.append(words))
    broker = _Broker()
    uplink = build(broker, clock, fake)
    thread = threading.Thread(target=uplink.send, args=[stored(990.0, 995.0)])
    thread.start()
    assert broker.looked.wait(60)
    clock.observe(START_WALL_S, resolution_s=0.2)
    thread.join(60)
    (batch,) = broker.sent
    assert all(TIME_UNKNOWN not in one["sensor_data"] for one in batch)
    times = [one["recorded_at"] for one in batch]
    assert times[0] < times[1], "each has its own time"
    assert "s ahead of the true time" in told[-1][1]


def test_a_batch_before_there_is_a_connection_spends_nothing_of_the_wait(fake):
    clock, broker = ServiceClock(fake), _Broker(is_up=False)
    uplink = build(broker, clock, fake)
    uplink.send(stored(990.0))
    assert uplink._time_until_s is None


def test_readings_of_an_earlier_boot_wait_for_nothing(fake):
    clock, broker = ServiceClock(fake), _Broker()
    uplink = build(broker, clock, fake)
    uplink.send([StoredReading(1, "k/1", make_reading(at=make_moment(5.0, boot_id="boot-0")))])
    assert len(broker.sent) == 1


def test_once_the_time_for_it_is_over_they_go_as_they_are(fake):
    clock, broker = ServiceClock(fake), _Broker()
    uplink = build(broker, clock, fake)
    uplink._time_until_s = fake.now().monotonic_s
    uplink.send(stored(990.0))
    assert TIME_UNKNOWN in broker.sent[0][0]["sensor_data"]
