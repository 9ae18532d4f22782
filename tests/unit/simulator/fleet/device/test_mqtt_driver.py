"""Virtual devices over MQTT on virtual time: sessions, receipts, back-off, power and links."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent.core.backoff import Backoff
from agent.core.polling import PollIntervals
from agent.core.values import Moment
from agent.errors import LockedOut, Offline
from agent.wire import topics
from agent.wire.extensions import BATCH_SENSOR_DATA
from agent.wire.mqtt_messages import Notice, Receipt, Refusal, encode, read_readings, read_result
from agent.wire.secret import Secret
from simulator.fleet.device.driver import Member
from simulator.fleet.device.ledger import DeviceLedger, Ledgers
from simulator.fleet.device.model import DeviceModel, Fleetwide
from simulator.fleet.device.mqtt_driver import SPREAD_S, MqttDriver
from simulator.fleet.engine.mqtt.ports import Arrival, Opening, Publisher, SessionListener, Standing, Will
from simulator.fleet.engine.virtual_time import VirtualClock
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import OutcomeClass

ID = "dev-1"
EPOCH_S = 1_790_000_000.0
MODEL = DeviceModel(interval_s=10.0, polling=PollIntervals(1.0, 2.0, 4.0), backoff=Backoff(base_s=1.0, cap_s=8.0))


class Engine:
    """One broker that does what the test says; see :class:`~simulator.fleet.engine.mqtt.ports.MqttEngine`."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.openings: list[Opening] = []
        self.published: list[tuple[str, bytes, bool]] = []
        self.waiting: list[tuple[str, bytes, Publisher, float]] = []
        self.acknowledged: list[Arrival] = []
        self.cuts = 0
        self.listener: SessionListener | None = None
        self._began_s = 0.0

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        self.openings.append(opening)
        self.listener, self._began_s = listener, self._clock.time()

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        self.published.append((topic, payload, retain))
        self.waiting.append((topic, payload, publisher, self._clock.time()))

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        self.acknowledged.append(arrival)

    def leave(self, device: int, farewell: Will | None = None) -> None:
        raise AssertionError("virtual devices lose their power, they do not leave")

    def cut(self, device: int) -> None:
        self.cuts += 1
        self.listener = None
        self.waiting.clear()

    async def close(self) -> None:
        """Nothing is open."""

    # --- the broker ---------------------------------------------------------------------------------------------

    def stand(self) -> None:
        assert self.listener is not None
        now_s = self._clock.time()
        self.listener.connected(
            Standing(kept=False, began_s=self._began_s, connected_s=now_s, max_packet_bytes=None), now_s
        )

    def puback(self, code: int = 0) -> tuple[str, bytes]:
        topic, payload, publisher, sent_s = self.waiting.pop(0)
        publisher.acknowledged(code, sent_s, self._clock.time())
        return topic, payload

    def lose(self, error: Offline | None = None) -> None:
        listener, self.listener = self.listener, None
        waiting, self.waiting = self.waiting, []
        now_s = self._clock.time()
        for _, _, publisher, sent_s in waiting:
            publisher.failed(OutcomeClass.TRANSPORT, "closed", sent_s, now_s)
        assert listener is not None
        listener.lost(error or Offline("closed", "closed"), OutcomeClass.TRANSPORT, self._began_s, now_s)

    def deliver(self, topic: str, payload: bytes, packet_id: int | None = 1) -> None:
        assert self.listener is not None
        self.listener.arrived(Arrival(topic, payload, False, packet_id, 1), self._clock.time())


class Observed(Ledgers):
    """Writes down every exchange."""

    def __init__(self, ledgers: list[DeviceLedger]) -> None:
        super().__init__(ledgers)
        self.exchanges: list[tuple[str, OutcomeClass, float, bool]] = []

    def exchanged(self, operation: str, outcome: OutcomeClass, device: int, **times: Any) -> None:
        super().exchanged(operation, outcome, device, **times)
        assert times["intended_s"] <= times["ready_s"] <= times["now_s"]
        if times["sent_s"] is not None:
            assert times["ready_s"] <= times["sent_s"] <= times["now_s"]
        self.exchanges.append((operation, outcome, times["now_s"] - times["intended_s"], times["first"]))

    def of(self, operation: str) -> list[OutcomeClass]:
        return [outcome for name, outcome, _, _ in self.exchanges if name == operation]


class Clocks:
    """Both clocks of virtual time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def now(self) -> Moment:
        return self.moment(self._clock.time())

    def moment(self, now_s: float) -> Moment:
        return Moment(now_s, EPOCH_S + now_s, "boot")


class Rig:
    """One device, its broker and its gateway."""

    def __init__(self, *, receipts: bool = True, **model: Any) -> None:
        self.clock = VirtualClock(1000.0)
        self.engine = Engine(self.clock)
        self.ledger = DeviceLedger(ID, "one")
        self.observed = Observed([self.ledger])
        fleet = Fleetwide(frozenset({BATCH_SENSOR_DATA}), 1, "run", book=self.observed)
        self.driver = MqttDriver(
            self.engine,
            Wheel(self.clock),
            [
                Member(
                    ID,
                    "product",
                    DeviceModel(
                        **({field: getattr(MODEL, field) for field in ("interval_s", "polling", "backoff")} | model)
                    ),
                )
            ],
            fleet,
            tokens=lambda _index: Secret("dat_1"),
            receipts=receipts,
            observer=self.observed,
            clocks=Clocks(self.clock),  # type: ignore[arg-type]  # the same two methods
        )

    def pass_s(self, seconds: float) -> None:
        self.clock.run_until(self.clock.time() + seconds)

    def up(self) -> None:
        """Switched on, connected, greeted."""
        self.driver.switch_on(0)
        self.pass_s(SPREAD_S)
        self.engine.stand()
        assert self.engine.puback()[0] == topics.status(ID)

    def until_published(self, topic: str) -> bytes:
        for _ in range(100):
            if self.engine.waiting:
                break
            self.pass_s(0.5)
        [(found, payload, _, _)] = self.engine.waiting
        assert found == topic
        return payload

    def readings(self) -> list[str]:
        """Wait for a message with readings; the keys in it."""
        batch = read_readings(self.until_published(topics.sensor_data(ID)))
        assert batch.refused == ()
        return [str(reading.key) for reading in batch.readings]

    def confirm(self, *stored: str, refused: tuple[Refusal, ...] = ()) -> None:
        self.engine.deliver(topics.receipts(ID), encode(Receipt(stored=stored, refused=refused)))

    def command(self, command_id: str = "c1", **members: Any) -> None:
        record = {
            "id": command_id,
            "device_id": ID,
            "command_payload": {"command": "ping"},
            "status": "queued",
            **members,
        }
        self.engine.deliver(topics.command(ID, command_id), json.dumps(record).encode())


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_device_connects_as_the_real_agent_does(rig):
    rig.driver.switch_on(0)
    assert rig.engine.openings == []  # each device at its own place of the first seconds
    rig.pass_s(SPREAD_S)
    [opening] = rig.engine.openings
    assert (opening.client_id, opening.clean_start, opening.session_expiry_s) == (ID, False, 3600)
    assert opening.password is not None
    assert opening.password.reveal() == "dat_1"
    assert dict(opening.subscriptions) == {
        "v1/devices/dev-1/commands/+": 1,
        "v1/devices/dev-1/receipts": 1,
        "v1/devices/dev-1/notice": 0,
    }
    assert opening.will is not None
    assert json.loads(opening.will.payload)["status"] == "offline"
    rig.engine.stand()
    [(topic, payload, retain)] = rig.engine.published
    assert (topic, json.loads(payload)["status"], retain) == ("v1/devices/dev-1/status", "online", True)
    assert rig.driver.connections == 1
    assert rig.observed.of("mqtt.connect") == [OutcomeClass.OK]


def test_a_reading_is_kept_until_the_gateway_has_it(rig):
    rig.up()
    [key] = rig.readings()
    assert key == "run-0-1"
    rig.engine.puback()
    rig.driver.sample(on=False)
    assert not rig.driver.settled
    assert rig.observed.of("mqtt.receipt") == []
    rig.confirm(key)
    assert rig.driver.settled
    assert (rig.ledger.accepted, rig.ledger.sent) == (1, 1)
    assert rig.observed.of("mqtt.sensor_data") == rig.observed.of("mqtt.receipt") == [OutcomeClass.OK]


def test_without_receipts_the_brokers_word_is_enough():
    rig = Rig(receipts=False)
    rig.up()
    assert rig.readings() == ["None"]
    rig.engine.puback(code=0x10)  # nobody listens, which is nobody's trouble here
    rig.driver.sample(on=False)
    assert rig.driver.settled
    assert rig.ledger.accepted == 1


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
    assert rig.driver.settled
    assert rig.observed.of("mqtt.receipt") == [OutcomeClass.TIMEOUT, OutcomeClass.OK]
    assert [first for name, _, _, first in rig.observed.exchanges if name == "mqtt.sensor_data"] == [True, False]
    assert "is the gateway running" in rig.ledger.faults[0]


def test_a_receipt_that_overtakes_the_acknowledgement_counts(rig):
    rig.up()
    keys = rig.readings()
    rig.driver.sample(on=False)
    rig.confirm(*keys)
    assert not rig.driver.settled
    rig.engine.puback()
    assert rig.driver.settled


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
    assert rig.driver.settled
    assert rig.ledger.accepted == len(keys) - 1
    assert "too hot" in rig.ledger.faults[-1]


def test_a_broker_without_a_gateway_is_told_apart(rig):
    rig.up()
    rig.readings()
    rig.engine.puback(code=0x10)
    assert "no gateway listens" in rig.ledger.faults[-1]
    assert not rig.driver.settled


@pytest.mark.parametrize(
    ("code", "outcome"), [(0x87, OutcomeClass.REFUSED), (0x97, OutcomeClass.LIMITED), (0x80, OutcomeClass.SERVER_ERROR)]
)
def test_a_broker_that_does_not_take_a_message_does_not_get_it_lost(rig, code, outcome):
    rig.up()
    keys = rig.readings()
    rig.engine.puback(code)
    assert rig.observed.of("mqtt.sensor_data") == [outcome]
    rig.pass_s(900)
    again = rig.readings()
    assert again[: len(keys)] == keys


def test_a_command_is_acknowledged_once_it_is_known_and_its_result_confirmed(rig):
    rig.up()
    rig.driver.sample(on=False)
    rig.command()
    [arrival] = rig.engine.acknowledged
    assert arrival.topic == topics.command(ID, "c1")
    result = read_result(rig.until_published(topics.result(ID, "c1")))
    assert result.status == "succeeded"  # type: ignore[union-attr]  # a refusal has none
    rig.engine.puback()
    assert rig.driver.gauges.open_commands == 1
    rig.confirm("result-succeeded-c1")
    assert rig.driver.gauges.open_commands == 0
    assert rig.driver.settled


def test_a_command_that_comes_again_is_acknowledged_and_not_done_again(rig):
    rig.up()
    rig.driver.sample(on=False)
    for _ in range(3):
        rig.command()
    rig.engine.puback()
    rig.confirm("result-succeeded-c1")
    rig.command()
    assert len(rig.engine.acknowledged) == 5  # the receipt, too
    assert rig.ledger.runs() == {"c1": 1}
    assert rig.driver.settled


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
    assert rig.ledger.runs() == {}


def test_the_gateways_hint_holds_readings_back_and_lets_results_go(rig):
    rig.up()
    rig.engine.deliver(topics.notice(ID), encode(Notice(retry_after_s=60.0)), None)
    rig.command()
    rig.engine.puback()
    rig.confirm("result-succeeded-c1")
    rig.pass_s(55)
    assert rig.engine.waiting == []
    assert len(rig.readings()) > 3


def test_the_gateways_clock_is_learned_from_its_notice(rig):
    rig.up()
    rig.engine.deliver(topics.notice(ID), encode(Notice(time=EPOCH_S + 5000 + 1001)), None)
    recorded = json.loads(rig.until_published(topics.sensor_data(ID)))["recorded_at"]
    assert recorded > "2026-09-21T15:50"  # an hour and more ahead of the device's own clock


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


def test_a_broker_that_locks_the_device_out_is_not_pestered(rig):
    rig.driver.switch_on(0)
    rig.pass_s(SPREAD_S)
    rig.engine.lose(LockedOut("unauthorized", "not accepted"))
    rig.pass_s(29)
    assert len(rig.engine.openings) == 1
    rig.pass_s(61)
    assert len(rig.engine.openings) == 2


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
    assert rig.driver.settled
    assert rig.ledger.accepted == rig.ledger.sent == len(keys)


def test_power_loss_leaves_the_disk_and_nothing_else(rig):
    rig.up()
    keys = rig.readings()
    rig.command(command_payload={"command": "self_test", "seconds": 5})
    rig.driver.switch_off(0)
    assert (rig.engine.cuts, rig.driver.connections, rig.driver.gauges.online) == (1, 0, 0)
    rig.pass_s(100)
    assert len(rig.engine.openings) == 1
    rig.up()
    rig.driver.sample(on=False)
    assert json.loads(rig.engine.puback()[1]) == {"status": "in_progress"}
    assert rig.readings() == keys  # byte for byte what may have arrived
    rig.engine.puback()
    rig.confirm(*keys)
    rig.pass_s(6)
    assert rig.ledger.runs() == {"c1": 2}  # idempotent: begun again


def test_a_lost_link_is_found_again_by_the_device_itself(rig):
    rig.up()
    rig.driver.lose(0)
    assert rig.driver.connections == 0
    rig.pass_s(30)
    assert len(rig.engine.openings) == 1
    assert set(rig.observed.of("mqtt.connect")[1:]) == {OutcomeClass.TRANSPORT}
    rig.driver.restore(0)
    rig.pass_s(8)
    assert len(rig.engine.openings) == 2
    rig.engine.stand()
    rig.engine.puback()
    assert len(rig.readings()) >= 2


@pytest.mark.parametrize("step", range(3))
def test_a_link_may_go_at_any_time(rig, step):
    steps: list[Callable[[], Any]] = [lambda: rig.driver.switch_on(0), lambda: rig.pass_s(SPREAD_S), rig.engine.stand]
    for each in steps[: step + 1]:
        each()
    rig.driver.lose(0)
    rig.driver.lose(0)
    rig.pass_s(20)
    rig.driver.restore(0)
    rig.pass_s(10)
    rig.engine.stand()
    assert rig.driver.connections == 1
