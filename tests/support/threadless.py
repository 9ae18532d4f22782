"""An actor without its thread: the same object, driven step by step by the test that holds it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from agent.runtime.actor import Actor

if TYPE_CHECKING:
    from agent.ports import Clock

_MOST_STEPS: Final = 10_000


class ThreadlessService:
    """Holds an actor and a mailbox and does nothing until :meth:`process_all`.

    Args:
        actor: begun at once.
        clock: what ``due_at`` is compared with; moving it on is the caller's business.
    """

    def __init__(self, actor: Actor, clock: Clock) -> None:
        self.actor = actor
        actor.post = self.post
        self._clock = clock
        self._messages: deque[Any] = deque()
        actor.begin()

    def post(self, message: Any) -> bool:
        """As :meth:`agent.runtime.actor.ServiceThread.post`."""
        if len(self._messages) >= self.actor.capacity:
            return False
        self._messages.append(message)
        return True

    def process_all(self) -> int:
        """Work off every message and every step that is due by now; how many there were.

        Raises:
            RuntimeError: there was no end of it: a step leaves itself due, so the service would spin.
        """
        for done in range(_MOST_STEPS):
            due_s = self.actor.due_at()
            if due_s is not None and due_s <= self._clock.now().monotonic_s:
                self.actor.step()
            elif self._messages:
                self.actor.receive(self._messages.popleft())
            else:
                return done
        raise RuntimeError(f"{self.actor.name} is due again and again without the clock moving on")
