"""What comes for a device over MQTT; whole runs over MQTT are in ``test_played_scenarios.py``."""

from __future__ import annotations

import json

import pytest

from agent.core.values import CommandState
from agent.errors import SessionTakenOver
from agent.wire import topics
from agent.wire.topics import Notice, Receipt, Refusal, encode
from simulator.fleet.device.driver import MqttDriver
from simulator.fleet.device.links import Links
from simulator.fleet.device.model import DeviceModel, Member
from simulator.fleet.device.mqtt_device import SPREAD_S, STABLE_S
from simulator.fleet.faults import Passage
from simulator.fleet.outcomes import Attempt, OutcomeClass
from tests.support.virtual_clock import VirtualClock
from tests.unit.simulator.fleet.device.fleet_fakes import RecordingLedger, RecordingObserver, a_fleet

ID = "dev-1"


class Broker:
    """An engine with one device, which has had its time to connect; every message is acknowledged at once."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.clock, self.observer, self.ledger = VirtualClock(1000.0), RecordingObserver(), RecordingLedger()
        self.published: list[tuple[str, bytes]] = []
        self.opened = 0
        fleet = a_fleet(self.clock, ledger=self.ledger, observer=self.observer)
        fleet.chance = lambda: 0.9
        links = Links(fleet, has_faults=delay_s > 0)
        links.passage = lambda *_: Passage(delay_s=delay_s)
        self.driver = MqttDriver(self, fleet, [Member(ID, "product", DeviceModel(interval_s=10.0))], links=links)
        self.driver.switch_on(0)
        self.pass_s(SPREAD_S)

    def open(self, device, opening, listener):
        self.listener = listener
        self.opened += 1
        self.clock.call_at(self.clock.time(), lambda: listener.connected(self.clock.time()))
        return self

    def publish(self, topic, payload, on_acknowledged, *, retain=False):
        self.published.append((topic, payload))
        now_s = self.clock.time()
        self.clock.call_at(now_s, lambda: on_acknowledged(0, now_s, now_s))

    def cut(self, device):
        """The power of the device goes."""

    def deliver(self, topic: str, payload: bytes) -> None:
        self.listener.arrived(topic, payload, self.clock.time())

    def pass_s(self, seconds: float) -> None:
        self.clock.run_until(self.clock.time() + seconds)


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (topics.command(ID, "c1"), b"no json"),
        (topics.command(ID, "c1"), b'{"id":"c2","command_payload":{}}'),
        (topics.command(ID, "c1"), b'{"id":"c1","device_id":"other","command_payload":{}}'),
        (topics.receipts(ID), b"[]"),
        ("elsewhere", b"{}"),
    ],
)
def test_a_message_that_makes_no_sense_is_told_and_taken_as_one_that_does(topic, payload):
    broker = Broker()
    broker.deliver(topic, payload)
    operation, _, sentence = broker.observer.faults[-1]
    assert operation == "mqtt.received"
    assert topic in sentence
    assert broker.ledger.calls == []


def test_the_gateways_hint_holds_readings_back_and_lets_results_go():
    broker = Broker()
    broker.deliver(topics.notice(ID), encode(Notice(retry_after_s=60.0)))
    command = {"id": "c1", "device_id": ID, "command_payload": {"command": "ping"}, "status": "queued"}
    broker.deliver(topics.command(ID, "c1"), json.dumps(command).encode())
    broker.pass_s(1)
    broker.deliver(topics.receipts(ID), encode(Receipt(stored=("result-succeeded-c1",))))
    broker.pass_s(54)
    assert [topic for topic, _ in broker.published] == [topics.status(ID), topics.result(ID, "c1")]
    broker.pass_s(10)
    topic, payload = broker.published[-1]
    assert (topic, len(json.loads(payload))) == (topics.sensor_data(ID), 6)


def test_a_result_that_the_gateway_refuses_is_undeliverable_and_its_reason_is_told():
    broker = Broker()
    command = {"id": "c1", "device_id": ID, "command_payload": {"command": "ping"}, "status": "queued"}
    broker.deliver(topics.command(ID, "c1"), json.dumps(command).encode())
    broker.pass_s(1)
    refusal = Refusal(key="result-succeeded-c1", error="validation_error", message="too deep")
    broker.deliver(topics.receipts(ID), encode(Receipt(refused=(refusal,))))
    broker.pass_s(1)
    entry = broker.driver.device(0).disk.journal.entries["c1"]
    assert entry.state is CommandState.UNDELIVERABLE
    assert "validation_error: too deep" in entry.undeliverable
    assert [call[0] for call in broker.ledger.calls if call[0] in {"reported", "undeliverable"}] == ["undeliverable"]
    assert "validation_error: too deep" in broker.observer.faults[-1][2]
    assert broker.driver.fleet.open_commands == 0


def test_a_connection_that_a_slow_link_held_up_is_not_made_once_the_power_went():
    broker = Broker(delay_s=1.0)
    broker.driver.switch_off(0)
    broker.driver.switch_on(0)
    broker.pass_s(2.9)
    assert broker.opened == 0, "three seconds after the power came, at the least"
    broker.pass_s(SPREAD_S + 0.1)
    assert broker.opened == 1


def test_a_device_whose_session_is_taken_over_again_and_again_waits_longer_each_time():
    broker, waits = Broker(), []
    for _ in range(3):
        broker.pass_s(STABLE_S + 1)
        lost_s, opened = broker.clock.time(), broker.opened
        broker.listener.lost(SessionTakenOver("taken_over", "another client"), OutcomeClass.REFUSED, lost_s)
        while broker.opened == opened:
            broker.pass_s(1)
        waits.append(broker.clock.time() - lost_s)
    assert waits[0] < waits[1] < waits[2]


def test_the_gateways_word_that_all_is_well_ends_a_back_off_and_the_wait_that_is_measured():
    broker = Broker()
    while not any(told.outcome is OutcomeClass.TIMEOUT for told in broker.observer.exchanges):
        broker.pass_s(0.001)
    sent, told = len(broker.published), len(broker.observer.exchanges)
    broker.deliver(topics.notice(ID), encode(Notice()))
    broker.pass_s(1)
    again = broker.observer.exchanges[told]
    assert (len(broker.published), again.attempt) == (sent + 1, Attempt.AMBIGUOUS)
    assert again.intended_s <= again.ready_s <= again.sent_s
