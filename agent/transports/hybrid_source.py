"""Two ways for commands: a push as the hint that comes at once, and a slow poll as the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from agent.core.backoff import Backoff
from agent.core.values import CommandPoll
from agent.errors import Offline, ServiceError
from agent.ports import Clock, CommandSource

if TYPE_CHECKING:
    from agent.transports.mqtt_source import MqttSource

# How long one wait for a push lasts; the next one follows at once.
_PUSH_WAIT_S: Final = 25.0


class HybridSource:
    """A :class:`~agent.ports.CommandSource` out of two.

    While the push is connected, the list is asked for every ``slow_s``, and each time the push has come back: whatever
    was lost in between is found. While it is not, the list is polled as if there were no push.

    At first contact the list comes first: a push must not make the history of a plain server look like news.

    Args:
        push: the hint.
        truth: the list.
        clock: when to ask for it.
        slow_s: how often, while pushes come, seconds.
        is_first_contact: the journal has never seen a list.
        fraction: random numbers in [0, 1), for the back-off of the list.
    """

    def __init__(
        self,
        push: MqttSource,
        truth: CommandSource,
        *,
        clock: Clock,
        slow_s: float,
        is_first_contact: Callable[[], bool],
        fraction: Callable[[], float],
    ) -> None:
        self._push = push
        self._truth = truth
        self._clock = clock
        self._slow_s = slow_s
        self._is_first_contact = is_first_contact
        self._fraction = fraction
        self._backoff = Backoff()
        self._was_up = False
        self._listed_last = False
        self._list_at_s = self._now_s()

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device. See :meth:`agent.ports.CommandSource.poll`.

        Raises:
            ServiceError: the list cannot be had, and there is no push either, or this is the first contact.
        """
        if not self._push.is_up:
            self._was_up = False
            return self._ask(wait_s)
        if not self._was_up:
            self._was_up = True
            self._list_at_s = self._now_s()
        if self._now_s() >= self._list_at_s or self._is_first_contact():
            try:
                return self._ask(0.0)
            except ServiceError as error:
                if self._is_first_contact():
                    raise
                self._backoff, delay_s = self._backoff.failed(self._fraction(), getattr(error, "retry_after_s", None))
                self._list_at_s = self._now_s() + delay_s
        self._listed_last = False
        try:
            return self._push.poll(max(0.0, min(_PUSH_WAIT_S, self._list_at_s - self._now_s())))
        except Offline:
            return self._ask(0.0)

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The journal has these, whichever way they came."""
        if self._listed_last:
            self._truth.acknowledge(command_ids)
        self._push.acknowledge(command_ids)

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the service has taken back; none where the service cannot be asked.

        See :meth:`agent.ports.CommandSource.canceled`: asked where the list comes from.
        """
        return self._truth.canceled(command_ids)

    def interrupt(self) -> None:
        """End a poll that waits, on either way."""
        self._push.interrupt()
        self._truth.interrupt()

    def close(self) -> None:
        """Close the MQTT source and the HTTP source."""
        self._push.close()
        self._truth.close()

    def set_slow_s(self, slow_s: float) -> None:
        """Ask for the list this often from now on."""
        self._slow_s = slow_s

    def _ask(self, wait_s: float) -> CommandPoll:
        self._listed_last = True
        poll = self._truth.poll(wait_s)
        self._backoff = self._backoff.succeeded()
        self._list_at_s = self._now_s() + self._slow_s
        return poll

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s
