"""The one loop by which readings and results go out: send what waits, back off after a failure, check now and then."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent.errors import InvalidMessage, Offline, ServiceError, StorageError
from agent.retry import RetryPolicy, describe
from agent.runtime.failure_log import REPEAT_AFTER_S, FailureLog
from agent.runtime.health import Health
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.ports import Clock, Uplink
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 5.0
# How often to check without a message.
_CHECK_EVERY_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class SendParts:
    """What both streams need of the agent.

    Attributes:
        uplink: where to.
        fraction: random numbers in [0, 1).
        first_s: how long after the start the first request comes.
    """

    uplink: Uplink
    journal: Journal
    clock: Clock
    health: Health
    fraction: Callable[[], float]
    first_s: float = 0.0


class SendLoop(Actor):
    """Hands over what waits; what cannot be handed over stays in the store.

    Messages: :data:`CONNECTED`: a back-off has lost its reason. Any other one: something new waits.

    Args:
        name: of the stream, in health and log.
        parts: what it needs.
    """

    CONNECTED: Final = "connected"

    def __init__(self, name: str, parts: SendParts) -> None:
        super().__init__(name)
        self._parts = parts
        self._clock, self._journal = parts.clock, parts.journal
        self._retry_policy = RetryPolicy(parts.fraction)
        self._failure_log = FailureLog(_log, self._now_s, REPEAT_AFTER_S)
        # What an earlier process left is sent at once.
        self._due_s = self._now_s()
        self._not_before_s = self._due_s + parts.first_s

    @abstractmethod
    def send(self) -> bool:
        """Hand over some of what waits; True when more can follow at once.

        Raises:
            ServiceError, InvalidMessage: all of it waits for the end of a back-off.
            StorageError: likewise, of a short one.
        """

    def receive(self, message: Any) -> None:
        """Something new waits, or the connection is back."""
        self._due_s = min(self._due_s, self._now_s())
        if message == self.CONNECTED:
            self._not_before_s = self._now_s()

    def due_at(self) -> float:
        """When something waits, but never before a back-off is over."""
        return max(self._due_s, self._not_before_s)

    def step(self) -> None:
        """Send once."""
        self._due_s = self._now_s() + _CHECK_EVERY_S
        try:
            more = self.send()
        except StorageError as error:
            self._failure_log.report("store", f"{self.name}=waiting: the store cannot be read or written: {error}")
            self._not_before_s = self._due_s = self._now_s() + _STORE_RETRY_S
        except (ServiceError, InvalidMessage) as error:
            delay_s = self._retry_policy.failed(error)
            self._not_before_s = self._due_s = self._now_s() + delay_s
            self.log_failure(error, delay_s)
        else:
            self._failure_log.recovered("store", f"{self.name}=ok: the store works again")
            if more:
                self._due_s = self._now_s()

    def finish(self) -> None:
        """One last try; whatever fails goes with the next start."""
        if self._now_s() < self._not_before_s:
            return
        try:
            self.send_last()
        except (StorageError, ServiceError, InvalidMessage) as error:
            _log.info("%s=stopped what waits goes with the next start: %s", self.name, error)

    def send_last(self) -> None:
        """Send what one last step takes."""
        self.send()

    def went_well(self) -> None:
        """The other side took something."""
        self._retry_policy.succeeded()
        self._failure_log.recovered(self.name, f"{self.name}=ok: the service takes {self.name} again")
        self._parts.health.put(self.name, "ok")

    def log_failure(self, error: ServiceError | InvalidMessage, delay_s: float) -> None:
        """Say that it failed, in log and health."""
        state, text, every_s = self.describe(error)
        if not isinstance(error, Offline):  # the part that keeps the connection logs it
            line = f"{self.name}={state}: {text}; next try in {delay_s:.0f} s"
            self._failure_log.report(self.name, line, every_s=every_s)
        self._parts.health.put(self.name, state, text)

    def describe(self, error: ServiceError | InvalidMessage) -> tuple[str, str, float | None]:
        """See :func:`agent.retry.describe`."""
        return describe(error)

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s
