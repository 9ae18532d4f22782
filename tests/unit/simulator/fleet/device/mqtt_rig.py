"""One virtual device over MQTT on virtual time, with its broker and its gateway in the test's hands."""

from __future__ import annotations

import json
from typing import Any

from agent.core.schedule import PollIntervals
from agent.errors import Offline
from agent.retry import Backoff
from agent.wire import topics
from agent.wire.mqtt_messages import Receipt, Refusal, encode
from agent.wire.secret import Secret
from agent.wire.server import BATCH_SENSOR_DATA
from gateway.mqtt_messages import read_readings
from simulator.fleet.device.driver import MqttDriver
from simulator.fleet.device.links import MqttLinks
from simulator.fleet.device.memory_ledger import DeviceLedger, MemoryLedger
from simulator.fleet.device.model import Clocks, DeviceModel, DriverContext, Exchange, Member, SharedSettings
from simulator.fleet.device.mqtt_device import SPREAD_S
from simulator.fleet.engine.mqtt import Arrival, Established, Opening, Publisher, SessionListener
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.outcomes import Attempt, OutcomeClass
from tests.support.fleet_faults import read_fault
from tests.support.virtual_clock import VirtualClock

ID = "dev-1"
EPOCH_S = 1_790_000_000.0
MODEL = DeviceModel(interval_s=10.0, polling=PollIntervals(1.0, 2.0, 4.0), backoff=Backoff(base_s=1.0, cap_s=8.0))


class Engine:
    """One broker that does what the test says; see :class:`~simulator.fleet.engine.mqtt.MqttEngine`."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.openings: list[Opening] = []
        self.published: list[tuple[str, bytes, bool]] = []
        self.waiting: list[tuple[str, bytes, Publisher, float]] = []
        self.acknowledged: list[Arrival] = []
        self.cuts = 0
        self.deaf = False
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
        self.listener.connected(Established(kept=False, began_s=self._began_s, max_packet_bytes=None), now_s)

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


class Observed(MemoryLedger):
    """Writes down every exchange."""

    def __init__(self, ledgers: list[DeviceLedger]) -> None:
        super().__init__(ledgers)
        self.exchanges: list[tuple[str, OutcomeClass, float, Attempt]] = []

    def exchanged(self, exchange: Exchange) -> None:
        super().exchanged(exchange)
        assert exchange.intended_s <= exchange.ready_s <= exchange.now_s
        if exchange.sent_s is not None:
            assert exchange.ready_s <= exchange.sent_s <= exchange.now_s
        waited_s = exchange.now_s - exchange.intended_s
        self.exchanges.append((exchange.operation, exchange.outcome, waited_s, exchange.attempt))

    def of(self, operation: str) -> list[OutcomeClass]:
        return [outcome for name, outcome, _, _ in self.exchanges if name == operation]

    def attempts(self, operation: str) -> list[Attempt]:
        return [attempt for name, _, _, attempt in self.exchanges if name == operation]


class Rig:
    """One device, its broker and its gateway."""

    def __init__(self, *faults: dict[str, Any], began_s: float = 1000.0, **model: Any) -> None:
        self.clock = VirtualClock(began_s)
        self.engine = Engine(self.clock)
        self.ledger = DeviceLedger(ID, "one")
        self.observed = Observed([self.ledger])
        active = ActiveFaults(began_s, EPOCH_S + began_s, map(read_fault, faults)) if faults else None
        fleet = SharedSettings(frozenset({BATCH_SENSOR_DATA}), 1, "run", ledger=self.observed, faults=active)
        wheel = Wheel(self.clock)
        self.links = MqttLinks(self.engine, self.clock, wheel, seed=1)
        self.links.faults = active
        fields = {name: getattr(MODEL, name) for name in ("interval_s", "polling", "backoff")}
        clocks = Clocks(self.clock.time, lambda: EPOCH_S + self.clock.time())
        self.driver = MqttDriver(
            self.links,
            DriverContext(wheel, fleet, observer=self.observed, clocks=clocks),
            [Member(ID, "product", DeviceModel(**(fields | model)))],
            tokens=lambda _index: Secret("dat_1"),
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
