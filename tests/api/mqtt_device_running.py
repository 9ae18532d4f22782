"""A device's MQTT side against a real broker, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from agent.core.values import Command
from agent.health import Health, RetryPolicy
from agent.transports.mqtt_connection import Arrival, Broker, Version
from agent.transports.mqtt_device import PART, MqttDevice
from agent.wire.secret import Secret
from agent.wire.topics import user_name
from tests.support.fakes import FakeClock
from tests.support.mosquitto import Mosquitto

SOON_S = 60.0


class RunningDevice(MqttDevice):
    """A device that is connected; the caller stops it.

    Attributes:
        clock: stands still.
        times: what the gateway said of its clock, in order.
        arrivals: the ids of the commands that came, in order; one that is sent again comes again.
    """

    def __init__(self, broker: Mosquitto, device_id: str = "d1", *, version: Version = "5", **options: Any) -> None:
        self.clock = FakeClock()
        self.health = Health(self.clock, self._note)
        self.times: list[float] = []
        self.arrivals: list[str] = []
        self._noted = threading.Condition()
        super().__init__(
            Broker("127.0.0.1", broker.port, user_name(device_id), version, connect_timeout_s=5.0),
            device_id,
            firmware_version="1.2.3",
            token=lambda: Secret("t"),
            clock=self.clock,
            health=self.health,
            waits=RetryPolicy(lambda: 0.1, base_s=0.2, cap_s=1.0),
            on_time=lambda time_s: self.times.append(time_s),
            on_ready=self._note,
            **{"receipt_timeout_s": SOON_S, **options},
        )
        self.start()
        self.wait_until(lambda: self.state == "ok")

    @property
    def state(self) -> str:
        """How the connection is."""
        part = self.health.parts().get(PART)
        return "" if part is None else part.state

    def wait_until(self, is_so: Callable[[], bool], within_s: float = SOON_S) -> None:
        """Wait for something that a connection, its end or a message makes so."""
        with self._noted:
            assert self._noted.wait_for(is_so, within_s), (self.health.parts(), self.arrivals)

    def wait_for_commands(self, *command_ids: str) -> None:
        """Wait until a message came for each of these commands."""
        self.wait_until(lambda: set(self.arrivals) >= set(command_ids))

    def _take_command(self, command: Command, arrival: Arrival) -> None:
        super()._take_command(command, arrival)
        self.arrivals.append(command.id)
        self._note()

    def _note(self) -> None:
        with self._noted:
            self._noted.notify_all()
