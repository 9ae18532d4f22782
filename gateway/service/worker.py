"""Workers: threads that make one kind of request while there is a reason, a grant, and a service that answers."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from agent.errors import InvalidMessage, RateLimited, ServiceError, StorageError
from agent.ports import Clock
from agent.runtime.failure_log import FailureLog
from agent.runtime.health import Health
from agent.runtime.retry_policy import RetryPolicy, describe
from agent.runtime.service import Actor
from agent.wire.connection import Interrupted
from gateway.core.budget import Grant, Kind
from gateway.service.meter import Meter

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

WAKE: Final = "wake"
"""The message after which a worker looks for work again."""

_STORE_RETRY_S: Final = 5.0


class RetryGate:
    """How one kind of request fares, shared by its workers: back-off, one log line per complaint, health.

    Args:
        name: of the kind, in log lines and status.
        clock: for waiting and repeating.
        health: takes the state.
        fraction: random numbers in [0, 1).
        repeat_after_s: how soon the same failure may be logged again, seconds.
        on_end: called after each request with what it failed with, None when it went well.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        health: Health,
        fraction: Callable[[], float],
        repeat_after_s: float,
        *,
        on_end: Callable[[Exception | None], object] = lambda _error: None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._health = health
        self._lock = threading.Lock()
        self._retry_policy = RetryPolicy(fraction)
        self._failure_log = FailureLog(_log, lambda: clock.now().monotonic_s, repeat_after_s)
        self._not_before_s = 0.0
        self._on_end = on_end

    @property
    def not_before_s(self) -> float:
        """When the next request may be tried, seconds on the monotonic clock."""
        return self._not_before_s

    def failed(self, error: ServiceError | InvalidMessage | StorageError) -> None:
        """A request failed: all workers of this kind wait."""
        self._on_end(error)
        now_s = self._clock.now().monotonic_s
        with self._lock:
            if isinstance(error, StorageError):
                self._not_before_s = max(self._not_before_s, now_s + _STORE_RETRY_S)
                self._failure_log.report("store", f"{self.name}=waiting: the store cannot be read or written: {error}")
                return
            state, text, every_s = describe(error)
            if isinstance(error, RateLimited):
                # The next grant of the budget ends the wait.
                self._failure_log.report("quota", f"{self.name}=rate_limited: {text}")
                self._health.put(self.name, state, text)
                return
            if self._not_before_s > now_s:
                return  # another worker met it in the same moment: one failure, not as many as there are workers
            delay_s = self._retry_policy.failed(error)
            self._not_before_s = now_s + delay_s
            self._failure_log.report(
                "service", f"{self.name}={state}: {text}; next try in {delay_s:.0f} s", every_s=every_s
            )
            self._health.put(self.name, state, text)

    def succeeded(self) -> None:
        """A request went well."""
        self._on_end(None)
        with self._lock:
            self._retry_policy.succeeded()
            self._not_before_s = 0.0
            self._failure_log.recovered("store", f"{self.name}=ok: the store works again")
            self._failure_log.recovered("service", f"{self.name}=ok: the service answers again")
            self._failure_log.recovered("quota", f"{self.name}=ok: the quota has room again")
            self._health.put(self.name, "ok")

    def report(self, topic: str, text: str) -> None:
        """Log a failure of another topic, unless it was logged lately."""
        with self._lock:
            self._failure_log.report(topic, text)


class RequestSource(ABC, Generic[Item]):
    """Where one kind of request comes from. Shared by its workers, so thread-safe."""

    name: str
    kind: Kind

    @abstractmethod
    def due_at(self, now_s: float) -> float:
        """When :meth:`take` may have something, seconds on the monotonic clock; infinite until :data:`WAKE`."""

    @abstractmethod
    def take(self) -> Item | None:
        """The next item, for this worker alone until :meth:`release`; None when there is none.

        Raises:
            StorageError: the store cannot be read.
        """

    @abstractmethod
    def run(self, item: Item) -> None:
        """Make the request and store its outcome.

        Raises:
            ServiceError, InvalidMessage, StorageError: try again later.
        """

    @abstractmethod
    def release(self, item: Item) -> None:
        """The worker is done with the item, successful or not."""


class Worker(Actor):
    """One thread that makes requests in turn.

    Args:
        source: what to do.
        meter: the key's budget.
        clock: the clock of ``due_at``.
        gate: shared with the other workers of this kind.
        number: among them.
    """

    capacity = 4

    def __init__(
        self, source: RequestSource[Any], meter: Meter, clock: Clock, gate: RetryGate, number: int = 0
    ) -> None:
        super().__init__(f"{source.name}-{number}")
        self._source = source
        self._meter = meter
        self._clock = clock
        self._gate = gate
        self._granted_s = 0.0

    def receive(self, message: Any) -> None:
        """Look again: :meth:`due_at` is asked right after."""
        del message

    def due_at(self) -> float:
        """When there is something to do, nothing forbids it, and the budget may grant it."""
        now_s = self._clock.now().monotonic_s
        return max(self._source.due_at(now_s), self._gate.not_before_s, self._granted_s)

    def step(self) -> None:
        """Make one request, if the budget grants it."""
        answer = self._meter.ask(self._source.kind)
        if not isinstance(answer, Grant):
            self._granted_s = answer.until_s
            return
        with self._meter.spend(answer):
            try:
                item = self._source.take()
                if item is None:
                    return
                try:
                    self._source.run(item)
                finally:
                    self._source.release(item)
            except Interrupted:
                return
            except (ServiceError, InvalidMessage, StorageError) as error:
                self._gate.failed(error)
            else:
                self._gate.succeeded()
