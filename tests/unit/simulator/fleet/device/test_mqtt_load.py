"""Pure load over MQTT on virtual time: every message is made once, sent once, and ends once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import Offline
from agent.wire import extensions, topics
from agent.wire.mqtt_messages import Receipt, Refusal, encode
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.device.load_base import LoadDevice, RequestKind
from simulator.fleet.device.model import Clocks, SharedSettings
from simulator.fleet.device.mqtt_load import MqttLoad
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import OutcomeClass
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, RecordingLedger, RecordingObserver
from tests.unit.simulator.fleet.device.mqtt_rig import ID, Engine
from tests.virtual_clock import VirtualClock

OK, REFUSED, TIMEOUT, TRANSPORT = (
    OutcomeClass.OK,
    OutcomeClass.REFUSED,
    OutcomeClass.TIMEOUT,
    OutcomeClass.TRANSPORT,
)


class Bench:
    """One session, its number in the fleet 10."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock(100.0)
        self.engine = Engine(self.clock)
        self.ledger = RecordingLedger()
        self.observer = RecordingObserver()
        fleet = SharedSettings(extensions.ALL, seed=1, run="run", numbered=True, ledger=self.ledger, began_s=100.0)
        self.load = MqttLoad(
            self.engine,
            Wheel(self.clock),
            [LoadDevice(ID)],
            fleet,
            first_index=10,
            observer=self.observer,
            clocks=Clocks(self.clock.time, lambda: START_S + self.clock.time()),
            **options,
        )

    def pass_s(self, seconds: float) -> None:
        self.clock.run_until(self.clock.time() + seconds)

    def up(self) -> None:
        self.load.switch_on(10)
        self.pass_s(0.1)
        self.engine.stand()

    def send(self) -> None:
        self.load.send(RequestKind.SENSOR_DATA, 10, self.clock.time())

    def confirm(self, *stored: str, refused: tuple[Refusal, ...] = ()) -> None:
        self.engine.deliver(topics.receipts(ID), encode(Receipt(stored=stored, refused=refused)))

    def told(self) -> list[tuple[str, OutcomeClass]]:
        return [(told.operation, told.outcome) for told in self.observer.exchanges]

    def written(self) -> list[str]:
        return [call[0] for call in self.ledger.calls]


@pytest.fixture
def bench() -> Bench:
    return Bench()


CONNECTED = ("mqtt.connect", OK)
SENT = ["reading_made", "reading_sent"]


def test_a_session_asks_for_receipts_and_for_nothing_to_be_kept(bench):
    bench.up()
    [opening] = bench.engine.openings
    assert opening.subscriptions == (("v1/devices/dev-1/receipts", 1),)
    assert (opening.clean_start, opening.session_expiry_s, opening.will) == (True, 0, None)
    assert (bench.load.connections, bench.told()) == (1, [CONNECTED])


def test_a_message_is_accepted_once_the_gateway_says_so(bench):
    bench.up()
    bench.send()
    [(topic, payload, _)] = bench.engine.published
    message = json.loads(payload)
    assert topic == topics.sensor_data(ID)
    assert (message["key"], message["sensor_data"].pop("fleet_sequence")) == ("run-10-1", 1)
    assert bench.written() == SENT
    assert digest_values(message["sensor_data"]) == bench.ledger.calls[1][3]
    bench.engine.puback()
    assert (len(bench.load.under_way), bench.written()) == (1, SENT)
    bench.pass_s(0.5)
    bench.confirm("run-10-1")
    assert not bench.load.under_way
    assert bench.told() == [CONNECTED, ("mqtt.sensor_data", OK), ("mqtt.receipt", OK)]
    assert bench.ledger.calls[2][:3] == ("readings_accepted", 10, (1,))
    assert len(bench.engine.acknowledged) == 1
    assert bench.observer.faults == []


def test_a_receipt_may_overtake_the_acknowledgement_and_come_twice(bench):
    bench.up()
    bench.send()
    bench.confirm("run-10-1")
    assert len(bench.load.under_way) == 1
    bench.engine.puback()
    bench.confirm("run-10-1")
    assert bench.told() == [CONNECTED, ("mqtt.sensor_data", OK), ("mqtt.receipt", OK)]
    assert bench.written() == [*SENT, "readings_accepted"]


def test_what_the_gateway_refuses_and_what_it_cannot_read_is_told(bench):
    bench.up()
    bench.send()
    bench.engine.puback()
    bench.confirm(refused=(Refusal(key="run-10-1", error="validation_error", message="too hot"),))
    bench.confirm(refused=(Refusal(error="invalid_json", message="line 1"),))
    assert bench.written() == [*SENT, "readings_refused"]
    assert bench.told()[2:] == [("mqtt.receipt", REFUSED)]
    assert [fault for _, _, fault in bench.observer.faults] == ["validation_error: too hot", "invalid_json: line 1"]


@pytest.mark.parametrize(
    ("code", "outcome", "written"),
    [
        (0x10, OK, ["readings_unanswered"]),
        (0x80, OutcomeClass.SERVER_ERROR, ["readings_unanswered"]),
        (0x87, REFUSED, ["readings_refused"]),
        (0x97, OutcomeClass.LIMITED, []),
    ],
)
def test_a_broker_that_takes_no_message_ends_it(bench, code, outcome, written):
    bench.up()
    bench.send()
    bench.engine.puback(code)
    assert not bench.load.under_way
    assert bench.told() == [CONNECTED, ("mqtt.sensor_data", outcome)]
    assert bench.written() == [*SENT, *written]
    bench.pass_s(100)
    assert len(bench.engine.published) == 1


def test_without_a_receipt_a_message_ends_in_time_and_is_not_sent_again(bench):
    bench.up()
    bench.send()
    bench.pass_s(1)
    bench.engine.puback()
    bench.pass_s(29.9)
    assert len(bench.load.under_way) == 1
    bench.pass_s(0.2)
    assert not bench.load.under_way
    assert bench.told()[-1] == ("mqtt.receipt", TIMEOUT)
    assert bench.written() == [*SENT, "readings_unanswered"]
    assert len(bench.engine.published) == 1


def test_what_is_due_while_a_session_is_made_waits_for_it_and_the_generator_is_not_blamed(bench):
    bench.load.switch_on(10)
    bench.pass_s(0.1)
    bench.send()
    bench.pass_s(2)
    assert bench.engine.published == []
    bench.engine.stand()
    bench.engine.puback()
    (told,) = [told for told in bench.observer.exchanges if told.operation == "mqtt.sensor_data"]
    assert (told.intended_s, told.ready_s, told.sent_s) == (pytest.approx(100.1), 102.1, 102.1)


def test_a_session_that_takes_too_long_costs_what_waits_for_it(bench):
    bench.load.switch_on(10)
    bench.pass_s(0.1)
    bench.send()
    bench.pass_s(10.1)
    assert bench.told() == [("mqtt.sensor_data", TIMEOUT)]
    assert bench.written() == SENT, "it never went out"
    assert not bench.load.under_way


def test_a_lost_session_ends_what_is_under_way_and_comes_back(bench):
    bench.up()
    bench.send()
    bench.engine.puback()
    bench.send()
    bench.engine.lose(Offline("closed", "gone"))
    assert (len(bench.load.under_way), bench.load.connections) == (0, 0)
    assert bench.told()[2:] == [("mqtt.sensor_data", TRANSPORT), ("mqtt.receipt", TRANSPORT)]
    assert bench.written().count("readings_unanswered") == 2
    bench.pass_s(30)
    assert len(bench.engine.openings) == 2
    bench.engine.stand()
    assert len(bench.engine.published) == 2


def test_without_power_there_is_no_session_and_nothing_under_way(bench):
    bench.up()
    bench.send()
    bench.load.switch_off(10)
    assert (len(bench.load.under_way), bench.load.connections, bench.engine.cuts) == (0, 0, 1)
    assert bench.written() == [*SENT, "readings_unanswered"]
    bench.pass_s(100)
    assert len(bench.engine.openings) == 1


def test_what_is_under_way_when_the_run_is_over_was_never_delivered(bench):
    bench.up()
    bench.send()
    bench.engine.puback()
    bench.send()
    bench.load.end()
    assert bench.load.undelivered == 2
    assert bench.told()[2:] == [("mqtt.receipt", TIMEOUT), ("mqtt.sensor_data", TIMEOUT)]
    assert bench.written().count("readings_unanswered") == 2


def test_a_closed_user_passes_over_devices_without_a_session(bench):
    bench.load.start_users(RequestKind.SENSOR_DATA, 2, 0.5)
    bench.pass_s(3)
    assert bench.written() == []
    bench.up()
    bench.pass_s(0.15)
    assert len(bench.load.under_way) == len(bench.engine.published) == 2
    lags = []
    for _ in range(2):
        bench.engine.puback()
    lags = [told.sent_s - told.intended_s for told in bench.observer.exchanges if told.operation == "mqtt.sensor_data"]
    assert max(lags) < 0.01


def test_a_closed_user_waits_for_the_gateways_word(bench):
    bench.up()
    bench.load.start_users(RequestKind.SENSOR_DATA, 1, 0.5)
    bench.pass_s(0.1)
    bench.engine.puback()
    bench.pass_s(5)
    assert len(bench.engine.published) == 1
    bench.confirm("run-10-1")
    bench.pass_s(0.6)
    assert len(bench.engine.published) == 2
    bench.load.stop_users()
    bench.engine.puback()
    bench.confirm("run-10-2")
    bench.pass_s(5)
    assert len(bench.engine.published) == 2
