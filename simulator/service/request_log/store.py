"""The last requests, in the order in which they ended. Only the event loop touches what is here.

What has just ended waits for at most :data:`SETTLE_S` as it came, and is then made an entry, cut and without secrets:
a service that is at its limit answers thousands of requests in that time, and most of them make room for others before
anybody could see them. Whoever reads settles what waits first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from simulator.service.errors import TooManyStreams
from simulator.service.matching import FoundPath
from simulator.service.request_log.entry import Entry
from simulator.service.request_log.making import make_entry
from simulator.service.request_log.recording import Recording

TOTAL_BYTES: Final = 64 * 1024 * 1024
"""What all entries may take; then the oldest goes, however few there are."""
SETTLE_S: Final = 5.0
WAITING_MAX: Final = 1_000
WAITING_BYTES: Final = 8 * 1024 * 1024
"""What waits is settled early beyond either."""
_AT_ONCE: Final = 50
"""Settled in one turn of the event loop, about a millisecond."""
READERS_MAX: Final = 16
"""Live tails at a time."""
RETRY_S: Final = 1
"""When to come back for one."""
_KNOWN_PATHS: Final = 4_096


class RequestLog:
    """The entries that are kept.

    Args:
        keep: how many; 0 keeps none.
        find: path -> its template; None when the service has no such path.
        total_bytes: how much they may take.

    Attributes:
        last_seq: of the request that ended last; 0 before the first.
        dropped: how many went to make room since the log was empty.
        last_dropped: ``seq`` of the youngest of these.
        latest_dropped_ms: when the last of these to come was received.
        under_way: requests that have no answer yet; what is cleared meanwhile is not kept when it ends.
        closing: the service ends, and every tail with it.
    """

    def __init__(self, keep: int, find: Callable[[str], FoundPath | None], total_bytes: int = TOTAL_BYTES) -> None:
        self.keep = keep
        self._find = lru_cache(maxsize=_KNOWN_PATHS)(find)
        self._total_bytes = total_bytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._waiting: deque[Recording] = deque()
        self._waiting_bytes = 0
        self._is_scheduled = False
        self._readers = 0
        self._listening: set[asyncio.Future[None]] = set()
        self.last_seq = 0
        self.dropped = 0
        self.last_dropped = 0
        self.latest_dropped_ms = 0
        self.under_way: set[Recording] = set()
        self.closing = False

    def add(self, recording: Recording) -> None:
        """Keep a request that has ended as the newest."""
        if not self.keep:
            return
        self.last_seq += 1
        recording.seq = self.last_seq
        self._waiting.append(recording)
        self._waiting_bytes += len(recording.body) + len(recording.answer)
        if len(self._waiting) + len(self._entries) > self.keep:
            self._drop()
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(SETTLE_S, self._settle_some, self.last_seq)
        while len(self._waiting) > WAITING_MAX or self._waiting_bytes > WAITING_BYTES:
            self._settle_one()
        if self._listening:
            self._wake()

    def _drop(self) -> None:
        """Make room: all that waits is younger than the entries."""
        if self._entries:
            entry = self._entries.popleft()
            self._bytes -= entry.size_bytes
            seq, received_ms = entry.seq, entry.received_ms
        else:
            recording = self._waiting.popleft()
            self._waiting_bytes -= len(recording.body) + len(recording.answer)
            seq, received_ms = recording.seq, recording.received_ms
        self.dropped += 1
        self.last_dropped = seq
        self.latest_dropped_ms = max(self.latest_dropped_ms, received_ms)

    def _settle_one(self) -> None:
        recording = self._waiting.popleft()
        self._waiting_bytes -= len(recording.body) + len(recording.answer)
        entry = self.entry_of(recording)
        self._entries.append(entry)
        self._bytes += entry.size_bytes
        while self._bytes > self._total_bytes:
            self._drop()

    def _settle_some(self, up_to: int) -> None:
        """Settle what had ended when the time was set, some in each turn, and set it again for what came since."""
        for _ in range(_AT_ONCE):
            if not self._waiting or self._waiting[0].seq > up_to:
                break
            self._settle_one()
        loop = asyncio.get_running_loop()
        if self._waiting and self._waiting[0].seq <= up_to:
            loop.call_soon(self._settle_some, up_to)
        elif self._waiting:
            loop.call_later(SETTLE_S, self._settle_some, self.last_seq)
        else:
            self._is_scheduled = False

    def settle(self) -> None:
        """Make entries of all that waits."""
        while self._waiting:
            self._settle_one()

    def clear(self, account: int | None = None) -> None:
        """Forget all requests, those under way too, or those of one account."""
        self.settle()
        if account is None:
            self._entries.clear()
            self.under_way.clear()
            self.dropped = self.last_dropped = self.latest_dropped_ms = 0
        else:
            self._entries = deque(one for one in self._entries if not _is_of(one, account))
            self.under_way.difference_update([one for one in self.under_way if _is_of(one, account)])
        self._bytes = sum(one.size_bytes for one in self._entries)

    def entries(self) -> list[Entry]:
        """All that is kept, oldest first."""
        self.settle()
        return list(self._entries)

    def entries_under_way(self) -> list[Entry]:
        """Requests that have no answer yet, as far as they have come; their ``seq`` is 0."""
        return [self.entry_of(one) for one in self.under_way]

    def entry_of(self, recording: Recording) -> Entry:
        """What is kept of a request, as far as it has come."""
        return make_entry(recording, self._find(recording.raw_path.decode("latin-1")))

    def after(self, seq: int) -> Iterator[Entry]:
        """The entries after a place, oldest first."""
        self.settle()
        younger: list[Entry] = []
        for one in reversed(self._entries):
            if one.seq <= seq:
                break
            younger.append(one)
        return reversed(younger)

    def dropped_since(self, since_ms: int | None, after: int | None) -> int:
        """How many requests of a time may have left the log, at most."""
        if since_ms is not None and self.latest_dropped_ms < since_ms:
            return 0
        return self.dropped if after is None else min(self.dropped, max(0, self.last_dropped - after))

    def gap(self, seq: int) -> int:
        """How many requests after a place have left the log."""
        return max(0, self.last_dropped - seq)

    def find(self, seq: int) -> Entry | None:
        """The entry; None when it is not there, or no longer."""
        self.settle()
        return next((one for one in self._entries if one.seq == seq), None)

    def join(self) -> None:
        """Begin to follow the log.

        Raises:
            TooManyStreams: as many follow as may.
        """
        if self._readers >= READERS_MAX:
            text = f"{READERS_MAX} readers follow the log of requests: end one of them."
            raise TooManyStreams("too_many_streams", text, retry_after_s=RETRY_S)
        self._readers += 1

    def leave(self) -> None:
        """Follow it no longer."""
        self._readers -= 1

    def news(self) -> asyncio.Future[None]:
        """A future that ends with the next request. Ask for it before reading, so that none falls in between."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closing:
            future.set_result(None)
        else:
            self._listening.add(future)
            future.add_done_callback(self._listening.discard)
        return future

    def _wake(self) -> None:
        for future in list(self._listening):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """The service ends."""
        self.closing = True
        self._wake()


def _is_of(request: Entry | Recording, account: int) -> bool:
    return request.caller is not None and request.caller.manufacturer_seq == account
