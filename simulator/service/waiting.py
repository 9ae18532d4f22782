"""Changes of commands: who waits for them (held polls, event streams), and which cached answers they make stale.

Only the event loop touches what is here. Most polls find what the last one found, so the answer to a device's poll is
cached until something of it changes. Every change of a device's commands goes through :meth:`Waiters.wake`, and only
one service writes to a database, so no change comes from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive

from simulator.service.answers import Answer
from simulator.service.errors import TooManyStreams

CACHED_MAX: Final = 50_000
"""Answers at most; then the oldest goes."""
CACHED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of their bodies at most; most are empty lists, and few devices have much to do at once."""
_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class CachedPoll:
    """The answer to a device's poll.

    Attributes:
        device_seq: the device's row.
        answer: with its tag as the first header.
        until_ms: when the first command in it ends, milliseconds since the epoch: from then on it is not true.
    """

    device_seq: int
    answer: Answer
    until_ms: int | None = None


class PollCache:
    """(account, device id) -> what ``GET /devices/{id}/commands?status=open`` answers."""

    def __init__(self) -> None:
        self._polls: dict[_Key, CachedPoll] = {}
        self._keys: dict[int, _Key] = {}
        self._bytes = 0

    def find(self, manufacturer_seq: int, device_id: str, now_ms: int) -> CachedPoll | None:
        """The answer; None when it has to be made."""
        poll = self._polls.get((manufacturer_seq, device_id))
        return None if poll is None or (poll.until_ms is not None and poll.until_ms <= now_ms) else poll

    def keep(self, manufacturer_seq: int, device_id: str, poll: CachedPoll) -> None:
        """Keep it. Nothing of the device may have changed since it was read."""
        self.forget(poll.device_seq)
        key = (manufacturer_seq, device_id)
        self._polls[key] = poll
        self._keys[poll.device_seq] = key
        self._bytes += len(poll.answer.body)
        while len(self._polls) > CACHED_MAX or self._bytes > CACHED_BYTES:
            self.forget(next(iter(self._keys)))

    def forget(self, device_seq: int) -> None:
        """The device's commands have changed, or it is gone."""
        key = self._keys.pop(device_seq, None)
        if key is not None:
            self._bytes -= len(self._polls.pop(key).answer.body)

    def clear(self) -> None:
        """Everything may have changed."""
        self._polls.clear()
        self._keys.clear()
        self._bytes = 0


class Waiters:
    """Wakes held polls. It remembers a device only while somebody waits for it.

    Attributes:
        cache: answers to polls; a change makes its device's one stale.
        on_change: called with a device's row after each change; None where nobody follows all of them.
        watchers: device row -> called with it after each change; of devices that the service plays.
    """

    def __init__(self) -> None:
        self.cache = PollCache()
        self.on_change: Callable[[int], object] | None = None
        self.watchers: dict[int, Callable[[int], object]] = {}
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self.closing = False

    def join(self, device_seq: int) -> asyncio.Future[None]:
        """A future that ends with the next change. Join before reading, so that no change falls in between."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closing:
            future.set_result(None)
        else:
            self._waiting.setdefault(device_seq, set()).add(future)
        return future

    def leave(self, device_seq: int, future: asyncio.Future[None]) -> None:
        """Stop waiting for commands of the device."""
        waiting = self._waiting.get(device_seq)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[device_seq]
        future.cancel()

    def wake(self, device_seq: int) -> None:
        """The device's commands have changed."""
        self.cache.forget(device_seq)
        for future in self._waiting.pop(device_seq, ()):
            if not future.done():
                future.set_result(None)
        if self.on_change is not None:
            self.on_change(device_seq)
        if self.watchers and device_seq in self.watchers:
            self.watchers[device_seq](device_seq)

    def wake_all(self) -> None:
        """Everything may have changed."""
        self.cache.clear()
        for device_seq in [*self._waiting, *self.watchers]:
            self.wake(device_seq)

    def close(self) -> None:
        """The service ends: nobody is held any longer."""
        self.closing = True
        self.wake_all()


async def hold(change: asyncio.Future[None], receive: Receive, timeout_s: float) -> bool:
    """Wait for the change, but not longer than the caller stays connected.

    Returns:
        False when the caller has gone.
    """
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait({change, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return not gone.done()
    finally:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


STREAMS_MAX: Final = 16
"""Streams of one account at a time: a gateway needs one."""
RETRY_S: Final = 30
"""When to come back for one."""


class Feed:
    """Wakes event streams after each commit that sent a command. Each reads from the storage, at its caller's speed."""

    def __init__(self) -> None:
        self._listeners: dict[asyncio.Event, int] = {}
        self._streams: Counter[int] = Counter()
        self.closing = False

    def join(self, account: int) -> asyncio.Event:
        """An event that is set when commands may have been sent. Join before reading, so that none falls between.

        Raises:
            TooManyStreams: the account has as many as it may have.
        """
        if self._streams[account] >= STREAMS_MAX:
            raise TooManyStreams(
                "too_many_streams",
                f"This account has {STREAMS_MAX} event streams open: end one, or let what needs the events share one.",
                retry_after_s=RETRY_S,
            )
        news = asyncio.Event()
        if self.closing:
            news.set()
        self._listeners[news] = account
        self._streams[account] += 1
        return news

    def leave(self, news: asyncio.Event) -> None:
        """Stop waiting for commands of the device."""
        account = self._listeners.pop(news)
        self._streams[account] -= 1
        if not self._streams[account]:
            del self._streams[account]

    def wake(self) -> None:
        """Wake those who wait: commands were sent."""
        for news in self._listeners:
            news.set()

    def close(self) -> None:
        """The service ends, and every stream with it."""
        self.closing = True
        self.wake()
