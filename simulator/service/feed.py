"""Who listens for commands: event streams, woken after each commit that sent one. Only the event loop touches it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from simulator.service.faults import ServiceFault

STREAMS_MAX: Final = 16
"""Streams of one account at a time: a gateway needs one."""
RETRY_S: Final = 30
"""When to come back for one."""


class Feed:
    """Wakes listeners. It carries nothing: each reads from the storage, as fast as its own caller takes it."""

    def __init__(self) -> None:
        self._listeners: dict[asyncio.Event, int] = {}
        self._streams: Counter[int] = Counter()
        self.closing = False

    def join(self, account: int) -> asyncio.Event:
        """An event that is set when commands may have been sent. Join before reading, so that none falls between.

        Raises:
            ServiceFault: 429 ``too_many_streams``.
        """
        if self._streams[account] >= STREAMS_MAX:
            raise ServiceFault(
                429,
                "too_many_streams",
                f"This account has {STREAMS_MAX} event streams open: end one, or let what needs the events share one.",
                headers=((b"retry-after", b"%d" % RETRY_S),),
            )
        news = asyncio.Event()
        if self.closing:
            news.set()
        self._listeners[news] = account
        self._streams[account] += 1
        return news

    def leave(self, news: asyncio.Event) -> None:
        """Stop listening."""
        account = self._listeners.pop(news)
        self._streams[account] -= 1
        if not self._streams[account]:
            del self._streams[account]

    def wake(self) -> None:
        """Commands were sent."""
        for news in self._listeners:
            news.set()

    def close(self) -> None:
        """The service ends, and every stream with it."""
        self.closing = True
        self.wake()
