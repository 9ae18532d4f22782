"""Who listens for commands: event streams, woken after each commit that sent one. Only the event loop touches it."""

from __future__ import annotations

import asyncio


class Feed:
    """Wakes listeners. It carries nothing: each reads from the storage, as fast as its own caller takes it."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Event] = set()
        self.closing = False

    def join(self) -> asyncio.Event:
        """An event that is set when commands may have been sent. Join before reading, so that none falls between."""
        news = asyncio.Event()
        if self.closing:
            news.set()
        self._listeners.add(news)
        return news

    def leave(self, news: asyncio.Event) -> None:
        """Stop listening."""
        self._listeners.discard(news)

    def wake(self) -> None:
        """Commands were sent."""
        for news in self._listeners:
            news.set()

    def close(self) -> None:
        """The service ends, and every stream with it."""
        self.closing = True
        self.wake()
