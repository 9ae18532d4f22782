"""Who waits for commands: held polls by device, and event streams for all of an account."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from starlette.types import Receive

from simulator.service.errors import ApiError

STREAMS_MAX: Final = 16
"""Event streams of one account at a time: a gateway needs one."""


class Changes:
    """Wakes who waits. Only the event loop's thread uses it, so nothing changes between a look and a wait.

    Attributes:
        listeners: called with a device's row after each change: the console, devices that the service plays.
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[int], None]] = []
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._streams: Counter[int] = Counter()
        self._news: set[asyncio.Event] = set()
        self.closing = False

    async def wait(self, device: int, timeout_s: float, receive: Receive) -> bool:
        """Wait until the device's commands change, at most so long; False when the caller has gone meanwhile."""
        if self.closing:
            return True
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(device, set()).add(change)
        gone = asyncio.ensure_future(_until_disconnected(receive))
        try:
            await asyncio.wait({change, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            waiting = self._waiting.get(device, set())
            waiting.discard(change)
            if not waiting:
                self._waiting.pop(device, None)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    def wake(self, device: int, *, sent: bool = False) -> None:
        """The device's commands have changed; ``sent``: one is new, so event streams wake up as well."""
        for change in self._waiting.pop(device, ()):
            if not change.done():
                change.set_result(None)
        for listener in self.listeners:
            listener(device)
        if sent:
            self._wake_streams()

    def wake_all(self) -> None:
        """Everything may have changed."""
        for device in list(self._waiting):
            self.wake(device)
        self._wake_streams()

    def _wake_streams(self) -> None:
        for news in self._news:
            news.set()

    @contextlib.contextmanager
    def stream(self, account: int) -> Iterator[asyncio.Event]:
        """An event that is set when commands may have been sent, for as long as a stream lasts.

        Raises:
            ApiError: 429 ``too_many_streams``.
        """
        if self._streams[account] >= STREAMS_MAX:
            text = (
                f"This account has {STREAMS_MAX} event streams open: end one, or let what needs the events share one."
            )
            raise ApiError(429, "too_many_streams", text, headers={"Retry-After": "30"})
        news = asyncio.Event()
        if self.closing:
            news.set()
        self._news.add(news)
        self._streams[account] += 1
        try:
            yield news
        finally:
            self._news.discard(news)
            self._streams[account] -= 1

    def close(self) -> None:
        """The service ends: nobody is held any longer."""
        self.closing = True
        self.wake_all()


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
