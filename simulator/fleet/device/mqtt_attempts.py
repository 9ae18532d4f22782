"""When a device connects to its broker: at its power-on, and after each loss with the agent's own back-off.

No I/O: the owner of the session calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent.core.backoff import Backoff
from agent.errors import Offline
from simulator.fleet.device.model import Observer
from simulator.fleet.device.mqtt_codec import MqttOperation
from simulator.fleet.device.retry_policy import RetryPolicy
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import Attempt, OutcomeClass

STABLE_S: Final = 10.0
"""A connection that stood this long shows that all is well: the next failure is the first of its row."""


class Attempts:
    """One device's connections, one after the other.

    Args:
        observer: called with each attempt.
        device: its index in the fleet.
        backoff: the pace of attempts.
        fraction: random numbers in [0, 1).

    Attributes:
        due_s: when to connect, on the monotonic clock; infinity while there is a connection, or one is being made.
        is_up: the subscriptions stand.
        stood_s: since when.
    """

    __slots__ = (
        "_attempt_s",
        "_backoff",
        "_device",
        "_fraction",
        "_observer",
        "_retry_policy",
        "due_s",
        "is_up",
        "stood_s",
    )

    def __init__(self, observer: Observer, device: int, backoff: Backoff, fraction: Callable[[], float]) -> None:
        self._observer = observer
        self._device = device
        self._backoff = backoff
        self._fraction = fraction
        self._retry_policy = RetryPolicy(backoff, fraction)
        self._attempt_s = 0.0
        self.due_s = NEVER
        self.is_up = False
        self.stood_s = 0.0

    @property
    def is_connecting(self) -> bool:
        """Whether an attempt is under way: it ends with a connection or a failure."""
        return not self.is_up and self.due_s == NEVER

    def begin(self, due_s: float) -> None:
        """Power on: the first attempt is due at this time."""
        self._retry_policy = RetryPolicy(self._backoff, self._fraction)
        self.due_s = due_s

    def take(self) -> None:
        """Note that the attempt that was due is made now."""
        self._attempt_s, self.due_s = self.due_s, NEVER

    def stood(self, began_s: float, now_s: float) -> None:
        """Note that the subscriptions were acknowledged."""
        self.is_up = True
        self.stood_s = now_s
        self._count(OutcomeClass.OK, began_s, now_s)

    def ended(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """Note that there is no connection any more, and plan the next attempt."""
        if not self.is_up:
            self._count(outcome, began_s, now_s)
        elif now_s - self.stood_s >= STABLE_S:
            self._retry_policy.succeeded()
        self._observer.faulted(MqttOperation.CONNECT, self._device, str(error))
        self.is_up = False
        self.due_s = now_s + self._retry_policy.failed(error)

    def give_up(self, before_s: float, now_s: float) -> None:
        """The run is over: an attempt that was due before this time and has no end counts as a timeout."""
        if self.is_connecting and self._attempt_s < before_s:
            self._count(OutcomeClass.TIMEOUT, self._attempt_s, now_s)

    def stop(self) -> None:
        """Cancel the attempts: the device is off."""
        self.is_up = False
        self.due_s = NEVER

    def _count(self, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        self._observer.exchanged(
            MqttOperation.CONNECT,
            outcome,
            self._device,
            intended_s=self._attempt_s,
            ready_s=self._attempt_s,
            sent_s=began_s,
            now_s=now_s,
            attempt=Attempt.FIRST,
        )
