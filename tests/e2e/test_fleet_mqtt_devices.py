"""Virtual devices over a real broker, beside a gateway's side written without them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from agent.core.poll_interval import PollIntervals
from agent.retry import Backoff
from agent.wire.extensions import BATCH_SENSOR_DATA
from simulator.fleet.device.driver import MqttDriver
from simulator.fleet.device.memory_ledger import DeviceLedger, MemoryLedger
from simulator.fleet.device.model import DeviceModel, DriverContext, Member, SharedSettings
from simulator.fleet.engine.mqtt_sessions import BrokerAddress, MqttSessions
from simulator.fleet.engine.wheel import LoopClock, Wheel
from tests.gateway_stand_in import GatewayStandIn
from tests.mosquitto import Mosquitto

SOON_S = 60.0
COUNT = 6
MODEL = DeviceModel(interval_s=0.1, polling=PollIntervals(0.2, 0.4, 0.8), backoff=Backoff(base_s=0.1, cap_s=0.5))


class Fleet:
    """Devices, and what they wrote down."""

    def __init__(self, broker: Mosquitto) -> None:
        wheel = Wheel(LoopClock())
        self.engine = MqttSessions(BrokerAddress("127.0.0.1", broker.port), wheel)
        self.ids = [f"d{number}" for number in range(COUNT)]
        self.ledgers = [DeviceLedger(device_id, device_id) for device_id in self.ids]
        ledger = MemoryLedger(self.ledgers)
        self._changed = asyncio.Event()
        shared = SharedSettings(frozenset({BATCH_SENSOR_DATA}), 1, "run", ledger=ledger)
        self.driver = MqttDriver(
            self.engine,
            DriverContext(wheel, shared, observer=ledger, on_news=self._changed.set),
            [Member(device_id, "product", MODEL) for device_id in self.ids],
            receipt_timeout_s=0.5,
        )

    def switch_on(self) -> None:
        for index in range(COUNT):
            self.driver.switch_on(index)

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(SOON_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def settle(self) -> None:
        self.driver.sample(on=False)
        await self.until(self.driver.has_settled)


@asynccontextmanager
async def fleet(broker: Mosquitto) -> AsyncIterator[Fleet]:
    made = Fleet(broker)
    try:
        yield made
    finally:
        await made.engine.close()


def test_every_reading_arrives_once_and_every_command_runs_once_through_power_cuts(start_mosquitto):
    broker = start_mosquitto()
    gateway = GatewayStandIn(broker)

    async def work() -> None:
        async with fleet(broker) as devices:
            devices.switch_on()
            await devices.until(lambda: all(ledger.accepted for ledger in devices.ledgers))
            for device_id in devices.ids:
                gateway.send(device_id, f"ping-{device_id}", {"command": "ping"})
                gateway.send(device_id, f"test-{device_id}", {"command": "self_test", "seconds": 0.3})
            for index in range(COUNT):
                devices.driver.switch_off(index)
                devices.driver.switch_on(index)
            await devices.until(lambda: not gateway.commands)
            await devices.settle()
            for index in range(COUNT):
                devices.driver.switch_off(index)
            for ledger in devices.ledgers:
                assert ledger.effects[f"ping-{ledger.device_id}"] == 1
            sent = sum(ledger.sent for ledger in devices.ledgers)
            assert sum(ledger.accepted for ledger in devices.ledgers) == sent == len(gateway.readings)

    try:
        uvloop.run(work())
        gateway.wait_until(lambda: all(gateway.status_of(f"d{n}") == "offline" for n in range(COUNT)))  # the wills
    finally:
        gateway.close()


def test_what_no_gateway_confirms_is_kept_and_comes_again(start_mosquitto):
    broker = start_mosquitto()
    gateway = GatewayStandIn(broker, confirms=False)

    async def work() -> None:
        async with fleet(broker) as devices:
            devices.switch_on()
            await devices.until(lambda: gateway.repeats > COUNT)
            assert not any(ledger.accepted for ledger in devices.ledgers)
            gateway.confirms = True
            await devices.settle()
            assert sum(ledger.accepted for ledger in devices.ledgers) == len(gateway.readings)

    try:
        uvloop.run(work())
    finally:
        gateway.close()


def test_devices_come_back_when_the_broker_does(start_mosquitto):
    broker = start_mosquitto()
    gateway = GatewayStandIn(broker)

    async def work() -> None:
        async with fleet(broker) as devices:
            devices.switch_on()
            await devices.until(lambda: all(ledger.accepted for ledger in devices.ledgers))
            await asyncio.to_thread(broker.kill)
            await devices.until(lambda: devices.driver.connections == 0)
            await asyncio.to_thread(broker.start)
            before = [ledger.accepted for ledger in devices.ledgers]
            await devices.until(
                lambda: all(now.accepted > then for now, then in zip(devices.ledgers, before, strict=True))
            )
            await devices.settle()
            assert all(ledger.accepted == ledger.sent for ledger in devices.ledgers)

    try:
        uvloop.run(work())
    finally:
        gateway.close()
