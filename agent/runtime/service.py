"""A service: a thread, a bounded mailbox and a name. What it does is an :class:`Actor`, without the thread.

An actor has two kinds of work: messages that others post, and a step that falls due at a time it names itself. The
driver waits for whichever comes first, so every wait ends at once when a message or the stop arrives. The same actor
runs in tests under :class:`~tests.threadless.ThreadlessService`, without a thread.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from agent.threads import OnCrash, WatchedThread, reporting_crash

if TYPE_CHECKING:
    from agent.ports import Clock


# A wait is cut into pieces of this length at most: a clock that jumps cannot make a service sleep for ever.
_LONGEST_WAIT_S: Final = 300.0


class Mailbox:
    """Messages for one service: bounded, in order, closed at the stop.

    Attributes:
        closed: True once :meth:`close` was called.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._messages: deque[Any] = deque()
        self._changed = threading.Condition()
        self.closed = False

    def put(self, message: Any) -> bool:
        """Add a message. False when the box is full or closed: the sender must keep it or be able to do without."""
        with self._changed:
            if self.closed or len(self._messages) >= self._capacity:
                return False
            self._messages.append(message)
            self._changed.notify()
            return True

    def take(self, timeout_s: float | None) -> Any | None:
        """The next message; None after ``timeout_s``, at a nudge, or when the box was closed."""
        with self._changed:
            if not self._messages and not self.closed and (timeout_s is None or timeout_s > 0):
                self._changed.wait(timeout_s)
            return self._messages.popleft() if self._messages else None

    def nudge(self) -> None:
        """Wake the waiting thread without a message."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Take nothing more and wake the waiting thread."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._messages)


class Actor(ABC):
    """The work of a service, without its thread.

    Class attributes:
        capacity: how many messages may wait.
        patience_s: how long one message or step may take before the watchdog calls the service stuck; None exempts it,
            since it waits for the network and a dead network is no ill health.

    Attributes:
        post: posts a message to this actor, from any thread; False when its mailbox is full or closed. Whoever drives
            the actor sets it.
    """

    capacity: int = 256
    patience_s: float | None = None
    post: Callable[[Any], bool]

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self) -> None:  # noqa: B027 - an actor without a beginning is right
        """The first thing in the service's thread."""

    @abstractmethod
    def receive(self, message: Any) -> None:
        """Work on one message."""

    def due_at(self) -> float | None:
        """When the next step falls due, seconds on the monotonic clock; None while only a message can make work."""
        return None

    def step(self) -> None:  # noqa: B027 - an actor that only answers messages has no step
        """The work that fell due. Afterwards :meth:`due_at` must be later, or the service would spin."""

    def interrupt(self) -> None:  # noqa: B027 - most steps are short
        """Called from another thread at the stop: make a step that waits for something return soon."""

    def finish(self) -> None:  # noqa: B027 - most actors leave nothing behind
        """The last thing in the service's thread, also after a crash."""


class ServiceThread:
    """Drives one actor in a thread of its own.

    Args:
        actor: what to do.
        clock: the clock that ``due_at`` speaks of.
        on_crash: called with the name of this service when its actor raised; the process then ends. Nothing is
            restarted in silence.

    Attributes:
        post: posts a message, from any thread; False when the mailbox is full or closed.
    """

    def __init__(self, actor: Actor, clock: Clock, on_crash: OnCrash) -> None:
        self.actor = actor
        self._clock = clock
        self._on_crash = on_crash
        self._mailbox = Mailbox(actor.capacity)
        self.post: Callable[[Any], bool] = self._mailbox.put
        actor.post = self.post
        self._thread = WatchedThread(self._run, name=actor.name, on_crash=on_crash)
        # Since when it works, or until when it waits; None before and after its life. Read by the supervisor.
        self._mark_s: float | None = None

    @property
    def name(self) -> str:
        """The actor's name, which is the thread's too."""
        return self.actor.name

    def start(self) -> None:
        """Start the service's thread."""
        self._thread.start()

    def nudge(self) -> None:
        """Let it look again at what is due: the machine slept, and waits do not count sleep as the clock does."""
        self._mailbox.nudge()

    def stop(self) -> None:
        """Ask it to end: no further messages or steps begin. Returns at once."""
        self._mailbox.close()
        self.actor.interrupt()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; True when it has ended (or never began)."""
        return self._thread.has_ended(timeout_s)

    def stuck_for_s(self, now_s: float) -> float:
        """For how long this service has made no progress where it should have; 0 when it is healthy."""
        mark_s = self._mark_s
        if self.actor.patience_s is None or mark_s is None:
            return 0.0
        return max(0.0, now_s - mark_s - self.actor.patience_s)

    def _run(self) -> None:
        try:
            with reporting_crash(self.name, self._on_crash):
                self._work(self.actor.begin)
                while not self._mailbox.closed:
                    self._turn()
            self.actor.finish()
        finally:
            self._mark_s = None

    def _turn(self) -> None:
        now_s = self._clock.now().monotonic_s
        due_s = self.actor.due_at()
        if due_s is not None and due_s <= now_s:
            self._work(self.actor.step)
            # Messages get their turn too, even when steps are always due.
            timeout_s = 0.0
        else:
            timeout_s = _LONGEST_WAIT_S if due_s is None else min(due_s - now_s, _LONGEST_WAIT_S)
        self._mark_s = now_s + timeout_s
        message = self._mailbox.take(timeout_s)
        if message is not None:
            self._work(lambda: self.actor.receive(message))

    def _work(self, task: Callable[[], None]) -> None:
        self._mark_s = self._clock.now().monotonic_s
        task()
