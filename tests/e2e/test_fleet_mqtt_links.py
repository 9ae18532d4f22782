"""Faults of the network over a real broker, beside a gateway's side written without them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvloop

from agent.core.backoff import Backoff
from agent.core.poll_interval import PollIntervals
from agent.wire.extensions import BATCH_SENSOR_DATA
from agent.wire.secret import Secret
from simulator.fleet.device.driver import Member
from simulator.fleet.device.memory_ledger import DeviceLedger, MemoryLedger
from simulator.fleet.device.model import DeviceModel, SharedSettings
from simulator.fleet.device.mqtt_driver import MqttDriver
from simulator.fleet.engine.mqtt.engine import BrokerAddress, MqttSessions
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.workload.mqtt_links import MqttLinks
from tests.fleet_faults import read_fault
from tests.gateway_stand_in import GatewayStandIn
from tests.mosquitto import Mosquitto, write_passwords

SOON_S = 20.0
COUNT = 4
MODEL = DeviceModel(interval_s=0.1, polling=PollIntervals(0.2, 0.4, 0.8), backoff=Backoff(base_s=0.1, cap_s=0.3))


class Observed(MemoryLedger):
    """Counts what ended how."""

    def __init__(self, ledgers: list[DeviceLedger]) -> None:
        super().__init__(ledgers)
        self.seen: list[tuple[str, OutcomeClass]] = []

    def exchanged(self, operation: str, outcome: OutcomeClass, device: int, **times: Any) -> None:
        super().exchanged(operation, outcome, device, **times)
        self.seen.append((operation, outcome))


class Bench:
    """An engine behind links, on the running loop."""

    def __init__(self, broker: Mosquitto) -> None:
        self.clock = LoopClock()
        self.wheel = Wheel(self.clock)
        self.address = BrokerAddress("127.0.0.1", broker.port)
        self.engine = MqttSessions(self.address, self.wheel)
        self.links = MqttLinks(self.engine, self.clock, self.wheel)
        self.ids = [f"d{number}" for number in range(COUNT)]
        self.ledgers = [DeviceLedger(device_id, device_id) for device_id in self.ids]
        self.observed = Observed(self.ledgers)
        self.fleet = SharedSettings(
            frozenset({BATCH_SENSOR_DATA}), 1, "run", ledger=self.observed, began_s=self.clock.time()
        )
        self._changed = asyncio.Event()

    def devices(self, **options: Any) -> MqttDriver:
        driver = MqttDriver(
            self.links,
            self.wheel,
            [Member(device_id, "product", MODEL) for device_id in self.ids],
            self.fleet,
            observer=self.observed,
            timeout_s=0.5,
            on_news=self._changed.set,
            **options,
        )
        for index in range(COUNT):
            driver.switch_on(index)
        return driver

    def begin(self, **fault: Any) -> None:
        """From now on, for as long as the fault lasts."""
        self.links.apply_link_faults(ActiveFaults(self.clock.time(), 0.0, [read_fault({"at_s": 0, **fault})]))

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(SOON_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


def test_a_broker_that_checks_tokens_refuses_the_revoked_ones_itself(start_mosquitto, tmp_path):
    users = {"gateway": "g", **{f"d{number}": "dat_right" for number in range(COUNT)}}
    broker = start_mosquitto(*write_passwords(tmp_path / "users", users))
    gateway = GatewayStandIn(broker, user="gateway", password="g")

    async def work() -> None:
        bench = Bench(broker)
        bench.begin(kind="revoked_keys", duration_s=60)
        driver = bench.devices(tokens=lambda _index: Secret("dat_right"))
        try:
            await bench.until(lambda: bench.observed.seen.count(("mqtt.connect", OutcomeClass.REFUSED)) == COUNT)
            assert driver.connections == 0
            assert any("Not authorized" in fault or "NOT_AUTHORIZED" in fault for fault in bench.ledgers[0].faults)
        finally:
            await bench.engine.close()

    try:
        uvloop.run(work())
    finally:
        gateway.close()
