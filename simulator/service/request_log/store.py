"""The last requests, in the order in which they ended. Only the event loop touches what is here."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from simulator.service.errors import TooManyStreams
from simulator.service.request_log.entry import Entry
from simulator.service.request_log.recording import Recording

KEEP_DEFAULT: Final = 1_000
KEEP_MAX: Final = 100_000
TOTAL_BYTES: Final = 64 * 1024 * 1024
"""What all entries may take; then the oldest goes, however few there are."""
READERS_MAX: Final = 16
"""Live tails at a time."""


class RequestLog:
    """The entries that are kept.

    Args:
        keep: how many; 0 keeps none.
        total_bytes: how much they may take.

    Attributes:
        dropped: how many went to make room since the log was empty.
        last_dropped: ``seq`` of the youngest of these.
        latest_dropped_ms: when the last of these to come was received.
        under_way: requests that have no answer yet; what is cleared meanwhile is not kept when it ends.
        closing: the service ends, and every tail with it.
    """

    def __init__(self, keep: int, total_bytes: int = TOTAL_BYTES) -> None:
        self.keep = keep
        self._total_bytes = total_bytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._last = 0
        self._readers: set[asyncio.Event] = set()
        self.dropped = 0
        self.last_dropped = 0
        self.latest_dropped_ms = 0
        self.under_way: set[Recording] = set()
        self.closing = False

    @property
    def last_seq(self) -> int:
        """``seq`` of the entry that was added last; 0 before the first."""
        return self._last

    def add(self, entry: Entry) -> None:
        """Keep it as the newest."""
        self._last += 1
        entry.seq = self._last
        self._entries.append(entry)
        self._bytes += entry.size_bytes
        while len(self._entries) > self.keep or self._bytes > self._total_bytes:
            self._drop()
        for news in self._readers:
            news.set()

    def _drop(self) -> None:
        oldest = self._entries.popleft()
        self._bytes -= oldest.size_bytes
        self.dropped += 1
        self.last_dropped = oldest.seq
        self.latest_dropped_ms = max(self.latest_dropped_ms, oldest.received_ms)

    def clear(self, account: int | None = None) -> None:
        """Forget all entries, or those of one account."""
        if account is None:
            self._entries.clear()
            self.under_way.clear()
            self.dropped = self.last_dropped = self.latest_dropped_ms = 0
        else:
            self._entries = deque(one for one in self._entries if not _is_of(one, account))
            self.under_way.difference_update([one for one in self.under_way if _is_of(one, account)])
        self._bytes = sum(one.size_bytes for one in self._entries)

    def newest_first(self, below: int | None = None) -> Iterator[Entry]:
        """The entries, from the one before ``below`` on."""
        return (one for one in reversed(self._entries) if below is None or one.seq < below)

    def oldest_first(self, above: int = 0) -> Iterator[Entry]:
        """The entries, from the one after ``above`` on."""
        entries = self._entries
        if entries and entries[-1].seq - above < len(entries) // 2:
            after: list[Entry] = []
            for one in reversed(entries):
                if one.seq <= above:
                    break
                after.append(one)
            return reversed(after)
        return (one for one in entries if one.seq > above)

    def find(self, seq: int) -> Entry | None:
        """The entry; None when it is not there, or no longer."""
        return next((one for one in self.newest_first(seq + 1) if one.seq == seq), None)

    def join(self) -> asyncio.Event:
        """An event that is set when there are new entries.

        Raises:
            TooManyStreams: as many listen as may.
        """
        if len(self._readers) >= READERS_MAX:
            text = f"{READERS_MAX} readers follow the log of requests: end one of them."
            raise TooManyStreams("too_many_streams", text, retry_after_s=1)
        news = asyncio.Event()
        if self.closing:
            news.set()
        self._readers.add(news)
        return news

    def leave(self, news: asyncio.Event) -> None:
        """Stop listening."""
        self._readers.discard(news)

    def close(self) -> None:
        """The service ends."""
        self.closing = True
        for news in self._readers:
            news.set()


def _is_of(request: Entry | Recording, account: int) -> bool:
    return request.caller is not None and request.caller.manufacturer_seq == account
