"""Commands on two ways: pushed over MQTT at once, and listed over HTTP now and then, so that no lost push matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from agent.core.values import CommandPoll
from agent.errors import Offline, ServiceError
from agent.ports import Clock, CommandSource
from agent.retry import RetryPolicy
from agent.transports.mqtt_device import MqttDevice

# How long one wait for a push lasts; the next one follows at once.
_PUSH_WAIT_S: Final = 25.0


@dataclass(eq=False)
class HybridSource:
    """A :class:`~agent.ports.CommandSource` out of two.

    While pushes can arrive, the list is asked for every ``list_every_s``, and each time they can again: whatever was
    lost in between is found. While they cannot, the list is polled as if there were no push.

    At first contact the list comes first: a push must not make the history of a plain server look like news.

    Attributes:
        is_first_contact: the journal has never seen a list.
        waits: after a list that could not be had, while pushes arrive.
    """

    pushes: MqttDevice
    lists: CommandSource
    clock: Clock
    list_every_s: float
    is_first_contact: Callable[[], bool]
    waits: RetryPolicy

    def __post_init__(self) -> None:
        self._was_up = False
        self._polled: CommandSource = self.lists
        self._list_at_s = self._now_s()

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device. See :meth:`agent.ports.CommandSource.poll`.

        Raises:
            ServiceError: the list cannot be had, and there is no push either, or this is the first contact.
        """
        was_up, self._was_up = self._was_up, self.pushes.is_up
        if not self._was_up:
            return self._list(wait_s)
        if not was_up or self._now_s() >= self._list_at_s or self.is_first_contact():
            try:
                return self._list(0.0)
            except ServiceError as error:
                if self.is_first_contact():
                    raise
                self._list_at_s = self._now_s() + self.waits.failed(error)
        self._polled = self.pushes
        try:
            return self.pushes.poll(max(0.0, min(_PUSH_WAIT_S, self._list_at_s - self._now_s())))
        except Offline:
            return self._list(0.0)

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The journal has these."""
        self._polled.acknowledge(command_ids)

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the service has taken back. See :meth:`agent.ports.CommandSource.canceled`."""
        return self.lists.canceled(command_ids)

    def interrupt(self) -> None:
        """End a poll that waits, on either way."""
        self.pushes.interrupt()
        self.lists.interrupt()

    def _list(self, wait_s: float) -> CommandPoll:
        self._polled = self.lists
        poll = self.lists.poll(wait_s)
        self.waits.succeeded()
        self._list_at_s = self._now_s() + self.list_every_s
        return poll

    def _now_s(self) -> float:
        return self.clock.now().monotonic_s
