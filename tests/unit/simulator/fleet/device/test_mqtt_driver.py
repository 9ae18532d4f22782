"""Virtual devices over MQTT on virtual time: sessions, receipts, back-off, power and links."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent.wire import topics
from agent.wire.mqtt_messages import Notice, Refusal, encode
from gateway.mqtt_messages import read_result
from simulator.fleet.device.mqtt_device import SPREAD_S
from simulator.fleet.outcomes import Attempt, OutcomeClass
from tests.unit.simulator.fleet.device.mqtt_rig import ID, Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_message_that_nobody_confirms_goes_again_with_the_same_keys(rig):
    rig.up()
    first = rig.readings()
    rig.driver.sample(on=False)
    rig.engine.puback()
    rig.pass_s(29.0)
    assert rig.engine.waiting == []
    assert rig.readings() == first
    rig.engine.puback()
    rig.confirm(*first)
    assert rig.driver.has_settled()
    assert rig.observed.of("mqtt.receipt") == [OutcomeClass.TIMEOUT, OutcomeClass.OK]
    assert rig.observed.attempts("mqtt.sensor_data") == [Attempt.FIRST, Attempt.AMBIGUOUS]
    assert "is the gateway running" in rig.ledger.faults[0]


def test_what_the_gateway_refuses_is_set_aside_and_the_rest_is_not(rig):
    rig.up()
    rig.engine.lose()
    rig.pass_s(45)  # it comes back, and readings have gathered
    rig.engine.stand()
    rig.engine.puback()
    keys = rig.readings()
    assert len(keys) > 1
    rig.driver.sample(on=False)
    rig.engine.puback()
    rig.confirm(*keys[1:], refused=(Refusal(key=keys[0], error="validation_error", message="too hot"),))
    assert rig.driver.has_settled()
    assert rig.ledger.accepted == len(keys) - 1
    assert "too hot" in rig.ledger.faults[-1]


def test_a_broker_without_a_gateway_is_told_apart(rig):
    rig.up()
    rig.readings()
    rig.engine.puback(code=0x10)
    assert "no gateway listens" in rig.ledger.faults[-1]
    assert not rig.driver.has_settled()


def test_a_command_is_acknowledged_once_it_is_known_and_its_result_confirmed(rig):
    rig.up()
    rig.driver.sample(on=False)
    rig.command()
    [arrival] = rig.engine.acknowledged
    assert arrival.topic == topics.command(ID, "c1")
    result = read_result(rig.until_published(topics.result(ID, "c1")))
    assert result.status == "succeeded"  # type: ignore[union-attr]  # a refusal has none
    rig.engine.puback()
    assert rig.driver.fleet.gauges.open_commands == 1
    rig.confirm("result-succeeded-c1")
    assert rig.driver.fleet.gauges.open_commands == 0
    assert rig.driver.has_settled()


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
def test_a_message_that_makes_no_sense_is_told_and_does_not_come_again(rig, topic, payload):
    rig.up()
    rig.engine.deliver(topic, payload)
    assert len(rig.engine.acknowledged) == 1
    assert topic in rig.ledger.faults[-1]
    assert rig.ledger.effects == {}


def test_the_gateways_hint_holds_readings_back_and_lets_results_go(rig):
    rig.up()
    rig.engine.deliver(topics.notice(ID), encode(Notice(retry_after_s=60.0)), None)
    rig.command()
    rig.engine.puback()
    rig.confirm("result-succeeded-c1")
    rig.pass_s(55)
    assert rig.engine.waiting == []
    assert len(rig.readings()) > 3


def test_a_lost_connection_comes_back_with_growing_patience(rig):
    rig.up()
    for _ in range(6):
        rig.engine.lose()
        assert rig.driver.connections == 0
        rig.pass_s(8.0)  # the cap
        assert rig.engine.listener is not None
    assert len(rig.engine.openings) == 7
    rig.engine.stand()
    assert rig.driver.connections == 1
    assert rig.observed.of("mqtt.connect") == [OutcomeClass.OK, *[OutcomeClass.TRANSPORT] * 5, OutcomeClass.OK]


@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_was_under_way_when_the_connection_broke_goes_again(rig, acknowledged):
    rig.up()
    keys = rig.readings()
    rig.driver.sample(on=False)
    if acknowledged:
        rig.engine.puback()
    rig.engine.lose()
    rig.pass_s(8)
    rig.engine.stand()
    rig.engine.puback()
    assert rig.readings() == keys
    rig.engine.puback()
    rig.confirm(*keys)
    assert rig.driver.has_settled()
    assert rig.ledger.accepted == rig.ledger.sent == len(keys)


def test_power_loss_leaves_the_disk_and_nothing_else(rig):
    rig.up()
    keys = rig.readings()
    rig.command(command_payload={"command": "self_test", "seconds": 5})
    rig.driver.switch_off(0)
    assert (rig.engine.cuts, rig.driver.connections, rig.driver.fleet.gauges.online) == (1, 0, 0)
    rig.pass_s(100)
    assert len(rig.engine.openings) == 1
    rig.up()
    rig.driver.sample(on=False)
    assert json.loads(rig.engine.puback()[1]) == {"status": "in_progress"}
    assert rig.readings() == keys  # byte for byte what may have arrived
    rig.engine.puback()
    rig.confirm(*keys)
    rig.pass_s(6)
    assert rig.ledger.effects == {"c1": 2}  # idempotent: begun again


@pytest.mark.parametrize("step", range(3))
def test_a_link_may_go_at_any_time(rig, step):
    steps: list[Callable[[], Any]] = [lambda: rig.driver.switch_on(0), lambda: rig.pass_s(SPREAD_S), rig.engine.stand]
    for each in steps[: step + 1]:
        each()
    rig.links.lose(0)
    rig.links.lose(0)
    rig.pass_s(20)
    rig.links.restore(0)  # the other cause is still there
    rig.pass_s(10)
    assert rig.driver.connections == 0
    rig.links.restore(0)
    rig.pass_s(10)
    rig.engine.stand()
    assert rig.driver.connections == 1


def test_a_message_that_the_gateway_cannot_read_costs_the_reading_that_spoils_it_and_no_other(rig):
    rig.up()
    rig.engine.lose()
    rig.pass_s(45)
    rig.engine.stand()
    rig.engine.puback()
    keys = rig.readings()
    rig.driver.sample(on=False)
    rig.engine.puback()
    unread = Refusal(error="invalid_json", message="line 1")
    rig.confirm(refused=(unread,))
    assert rig.observed.of("mqtt.receipt") == [OutcomeClass.REFUSED]
    assert rig.readings() == keys[:1]
    rig.engine.puback()
    rig.confirm(refused=(unread,))
    assert rig.readings() == keys[1:]
    rig.engine.puback()
    rig.confirm(*keys[1:])
    assert rig.driver.has_settled()
    assert rig.ledger.accepted == len(keys) - 1
    assert any("invalid_json: line 1" in fault for fault in rig.ledger.faults)
