"""Actors: threads that work on messages and on time; what all actors of one agent share, and how often they work."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from agent.core.values import JournalEntry, Report
from agent.health import Health, OnCrash, WatchedThread, only_logged, reporting_crash
from agent.ports import Clock
from agent.runtime.clocks import ServiceClock
from agent.store.journal import Journal
from agent.store.store import Store

_log = logging.getLogger(__name__)

# A wait is cut into pieces of this length: a clock that jumps, or counts the sleep of the machine as waits do not,
# delays nothing for longer.
_LONGEST_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Context:
    """What the actors of one agent share.

    Attributes:
        device_id: this device.
        store: its journal and outbox.
        clock: the device's own clocks.
        time: the service's clock, and when moments were.
        health: the state of each part.
        post_result: takes a command whose result waits to be reported, and progress, which may be lost. Thread-safe.
        on_crash: called with the name of an actor whose thread an error has ended; the process then ends, too.
        fraction: random numbers in [0, 1).
        first_s: how long after the start the first request comes, seconds.
    """

    device_id: str
    store: Store
    clock: Clock
    time: ServiceClock
    health: Health
    post_result: Callable[[JournalEntry | Report], object] = lambda _message: None
    on_crash: OnCrash = only_logged
    fraction: Callable[[], float] = random.random
    first_s: float = 0.0


class Actor(ABC):
    """A thread with a bounded queue of messages.

    It has two kinds of work: messages that others post, and a step that falls due at a time it names itself. The thread
    waits for whichever comes first. Nothing is restarted in silence: an error ends the thread and the process.

    Class attributes:
        capacity: how many messages may wait.
        max_step_s: how long one message or step may take before the watchdog calls the actor stuck; None exempts it,
            since it waits for the network and a dead network is no ill health.

    Args:
        name: of the thread, and of its part in health and log.
        context: what it shares with the others.
    """

    capacity: int = 256
    max_step_s: float | None = None

    def __init__(self, name: str, context: Context) -> None:
        self.name = name
        self.context = context
        self._messages: queue.Queue[Any] = queue.Queue(self.capacity)
        self._is_closed = False
        self._thread = WatchedThread(self._run, name=name, on_crash=context.on_crash)
        # Since when it works, or until when it waits, ``time.monotonic()``; None before and after its life.
        self._mark_s: float | None = None

    # --- the work, by subclasses --------------------------------------------------------------------------------------

    def begin(self) -> None:  # noqa: B027 - an actor without a beginning is right
        """The first thing in the thread."""

    @abstractmethod
    def receive(self, message: Any) -> None:
        """Work on one message."""

    def due_at(self) -> float | None:
        """When the next step falls due, seconds on the monotonic clock; None while only a message can make work."""
        return None

    def step(self) -> None:  # noqa: B027 - an actor that only answers messages has no step
        """The work that fell due. Afterwards :meth:`due_at` must be later, or the thread would spin."""

    def interrupt(self) -> None:  # noqa: B027 - most steps are short
        """Called from another thread at the stop: make a step that waits for something return soon."""

    def finish(self) -> None:  # noqa: B027 - most actors leave nothing behind
        """The last thing in the thread, also after a crash."""

    def now_s(self) -> float:
        """The device's monotonic clock."""
        return self.context.clock.now().monotonic_s

    # --- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; RuntimeError when the process is out of threads."""
        self._thread.start()

    def post(self, message: Any) -> bool:
        """Add a message, from any thread. False when the queue is full or closed: the sender must keep the message or
        be able to do without.
        """
        if self._is_closed:
            return False
        try:
            self._messages.put_nowait(message)
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        """Ask it to end: no further messages or steps begin. Returns at once."""
        self._is_closed = True
        with suppress(queue.Full):  # then it is not waiting
            self._messages.put_nowait(None)
        self.interrupt()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; True when it has ended (or never began)."""
        return self._thread.has_ended(timeout_s)

    def stuck_for_s(self) -> float:
        """For how long it has made no progress where it should have; 0 when it is healthy."""
        mark_s = self._mark_s
        if self.max_step_s is None or mark_s is None:
            return 0.0
        return max(0.0, time.monotonic() - mark_s - self.max_step_s)

    def _run(self) -> None:
        try:
            with reporting_crash(self.name, self.context.on_crash):
                self._mark_s = time.monotonic()
                self.begin()
                while not self._is_closed:
                    self._turn()
            self.finish()
        finally:
            self._mark_s = None

    def _turn(self) -> None:
        due_s = self.due_at()
        wait_s = _LONGEST_WAIT_S if due_s is None else min(due_s - self.now_s(), _LONGEST_WAIT_S)
        if wait_s <= 0:
            self._mark_s = time.monotonic()
            self.step()
            wait_s = 0.0  # messages get their turn too, even when steps are always due
        self._mark_s = time.monotonic() + wait_s
        try:
            message = self._messages.get(timeout=wait_s)
        except queue.Empty:
            return
        if not self._is_closed:
            self._mark_s = time.monotonic()
            self.receive(message)


# --- the intervals that a command may set -----------------------------------------------------------------------------

POLL: Final = "poll"
MIN_SENSOR_S: Final = 0.1
MIN_POLL_S: Final = 0.5
MAX_S: Final = 31 * 86400.0


class Intervals:
    """Intervals by name: the sensors' and ``poll``.

    Args:
        journal: where a set interval survives a restart.
        configured: what the configuration says, seconds; the names in it are all there are.
        on_change: called with the name of an interval that was set, from the thread that set it.
    """

    def __init__(self, journal: Journal, configured: Mapping[str, float], on_change: Callable[[str], None]) -> None:
        self._journal = journal
        self._configured = dict(configured)
        self._on_change = on_change
        self._lock = threading.Lock()
        self._set: dict[str, float] = {}
        for name in self._configured:
            text = journal.setting(_interval_key(name))
            if text is None:
                continue
            try:
                self._set[name] = _within_bounds(name, float(text))
            except ValueError:
                _log.warning("interval=%s stored value %.40r is not usable: the configuration's is used", name, text)

    def get(self, name: str) -> float:
        """The interval in force, seconds.

        Raises:
            KeyError: nothing has this name.
        """
        with self._lock:
            return self._set.get(name, self._configured[name])

    def is_set(self, name: str) -> bool:
        """True when ``set_interval`` replaced the configuration's value."""
        with self._lock:
            return name in self._set

    def set(self, name: str, interval_s: float | None) -> float:
        """Set it, or go back to the configuration's with None; returns what is in force now, seconds.

        Raises:
            KeyError: nothing has this name.
            ValueError: out of bounds; the text says which.
            StorageError: it could not be stored, so it does not apply.
        """
        if name not in self._configured:
            raise KeyError(name)
        if interval_s is not None:
            interval_s = _within_bounds(name, interval_s)
        self._journal.put_setting(_interval_key(name), None if interval_s is None else repr(interval_s))
        with self._lock:
            if interval_s is None:
                self._set.pop(name, None)
            else:
                self._set[name] = interval_s
        self._on_change(name)
        return self.get(name)


def _interval_key(name: str) -> str:
    return f"interval.{name}"


def _within_bounds(name: str, interval_s: float) -> float:
    least_s = MIN_POLL_S if name == POLL else MIN_SENSOR_S
    if not least_s <= interval_s <= MAX_S:
        raise ValueError(f"the interval of {name!r} must be {least_s:g} to {MAX_S:g} s, not {interval_s:g}")
    return interval_s
