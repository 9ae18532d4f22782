"""What the service offers, asked by one errand and read by all the others without waiting.

A thread that holds a grant must never wait for a thread that waits for one: so nobody asks the service on the way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from agent.adapters.discovery import REFRESH_S, Discovery
from agent.core.budget import Kind
from agent.errors import TransportError
from agent.gateway.service.worker import Errands
from agent.ports import Clock
from agent.wire.device_client import DeviceClient

UNKNOWN_LOOK_S: Final = 2.0
"""While nobody knows what the service offers, who needs to know looks again after this."""

_SOON_S: Final = 60.0


class Offer(Discovery, Errands[str]):
    """A :class:`~agent.adapters.discovery.Discovery` that answers from memory, and the errand that fills it.

    Args:
        client: who to ask with.
        clock: when to ask again.
        on_change: the answer is another one than before.
    """

    name = "discovery"
    kind = Kind.UPKEEP

    def __init__(self, client: DeviceClient, clock: Clock, on_change: Callable[[], None]) -> None:
        super().__init__(client, clock)
        self._asker = client
        self._on_change = on_change
        self._mutex = threading.Lock()
        self._names: frozenset[str] | None = None
        self._due_s = 0.0

    @property
    def is_known(self) -> bool:
        """The service was asked, and answered."""
        return self._names is not None

    def offers(self, extension: str) -> bool:
        """True when the service offers this extension.

        Raises:
            TransportError: nobody knows yet.
        """
        names = self._names
        if names is None:
            raise TransportError("the service has not told yet what it offers")
        return extension in names

    def knows(self, extension: str) -> bool:
        """As :meth:`offers`; False while nobody knows."""
        return extension in (self._names or ())

    def forget(self) -> None:
        """The service did not do what it offered: ask again soon; until then the last answer stands."""
        with self._mutex:
            self._due_s = min(self._due_s, self._clock.now().monotonic_s + _SOON_S)

    def due_at(self, now_s: float) -> float:
        """See :class:`Errands`."""
        del now_s
        return self._due_s

    def take(self) -> str | None:
        """See :class:`Errands`; there is one thing to do."""
        return self.name

    def run(self, item: str) -> None:
        """See :class:`Errands`."""
        del item
        names = self._asker.discover()
        with self._mutex:
            is_news = names != self._names
            self._names = names
            self._due_s = self._clock.now().monotonic_s + REFRESH_S
        if is_news:
            self._on_change()

    def release(self, item: str) -> None:
        """See :class:`Errands`."""
