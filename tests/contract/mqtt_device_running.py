"""A device's MQTT side against a real broker, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from agent.errors import Offline
from agent.runtime.retry_policy import RetryPolicy
from agent.transports.mqtt_connection import Arrival, Broker
from agent.transports.mqtt_device import MqttDevice
from agent.wire import topics
from agent.wire.secret import Secret
from agent.wire.topics import user_name
from tests.fakes import FakeClock
from tests.mosquitto import Mosquitto

SOON_S = 60.0


class RunningDevice:
    """A connected :class:`MqttDevice`; the caller closes it.

    Attributes:
        troubles: what the connection told, in order.
    """

    def __init__(self, broker: Mosquitto, device_id: str = "d1", **options: Any) -> None:
        self.clock = FakeClock()
        self.troubles: list[Offline] = []
        self._changed = threading.Condition()
        self._ups = 0
        self.device = MqttDevice(
            Broker("127.0.0.1", broker.port, user_name(device_id), connect_timeout_s=5.0),
            device_id,
            firmware_version="1.2.3",
            token=lambda: Secret("t"),
            clock=self.clock,
            waits=RetryPolicy(lambda: 0.1, base_s=0.2, cap_s=1.0),
            on_up=self._up,
            on_down=self._down,
            **{"timeout_s": SOON_S, **options},
        )
        self._arrivals: list[str] = []
        self._take, self.device.source.arrived = self.device.source.arrived, self._arrived  # type: ignore[method-assign]
        self.device.start()
        self.wait_for_up()

    def wait_until(self, is_so: Callable[[], bool], within_s: float = SOON_S) -> None:
        """Wait for something that a connection or its end makes so."""
        with self._changed:
            assert self._changed.wait_for(is_so, within_s), self.troubles

    def wait_for_up(self, times: int = 1) -> None:
        """Wait until the connection has stood so many times."""
        self.wait_until(lambda: self._ups >= times)

    def wait_for_arrivals(self, count: int) -> None:
        """Wait until so many messages came on the commands' topic.

        A gateway sends a command again when the device comes online: they need not be of so many commands.
        """
        self.wait_until(lambda: len(self._arrivals) >= count)

    def wait_for_commands(self, *command_ids: str) -> None:
        """Wait until a message came for each of these commands."""
        self.wait_until(lambda: {topics.parse(topic).command_id for topic in self._arrivals} >= set(command_ids))

    def close(self) -> None:
        """Disconnect."""
        self.device.stop()

    def _arrived(self, arrival: Arrival) -> None:
        self._take(arrival)
        with self._changed:
            self._arrivals.append(arrival.topic)
            self._changed.notify_all()

    def _up(self) -> None:
        with self._changed:
            self._ups += 1
            self._changed.notify_all()

    def _down(self, error: Offline, _wait_s: float) -> None:
        with self._changed:
            self.troubles.append(error)
            self._changed.notify_all()
