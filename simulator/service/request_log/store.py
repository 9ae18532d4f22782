"""The last requests, in the order in which they ended. Only the event loop touches what is here.

A request that has ended is cut and its secrets are taken out before it is kept. An :class:`Entry` is made of it when
somebody reads: of a service that is at its limit most requests make room for others before that.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Final

from simulator.service.matching import FoundPath
from simulator.service.request_log.entry import Entry
from simulator.service.request_log.logged_paths import LoggedPaths
from simulator.service.request_log.making import make_entry, take_secrets_out
from simulator.service.request_log.recording import Recording

TOTAL_BYTES: Final = 64 * 1024 * 1024
"""What all that is kept may take; then the oldest goes, however few there are."""


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
    """

    def __init__(self, keep: int, find: Callable[[str], FoundPath | None], total_bytes: int = TOTAL_BYTES) -> None:
        self.keep = keep
        self._paths = LoggedPaths(find)
        self._total_bytes = total_bytes
        self._kept: deque[Recording] = deque()
        self._bytes = 0
        self.last_seq = 0
        self.dropped = 0
        self.last_dropped = 0
        self.latest_dropped_ms = 0
        self.under_way: set[Recording] = set()

    def add(self, recording: Recording) -> None:
        """Keep a request that has ended as the newest."""
        if not self.keep:
            return
        take_secrets_out(recording, self._paths.look_up(recording.raw_path))
        self.last_seq += 1
        recording.seq = self.last_seq
        self._kept.append(recording)
        self._bytes += recording.size_bytes
        while len(self._kept) > self.keep or self._bytes > self._total_bytes:
            self._drop()

    def _drop(self) -> None:
        recording = self._kept.popleft()
        self._bytes -= recording.size_bytes
        self.dropped += 1
        self.last_dropped = recording.seq
        self.latest_dropped_ms = max(self.latest_dropped_ms, recording.received_ms)

    def clear(self, account: int | None = None) -> None:
        """Forget all requests, those under way too, or those of one account."""
        if account is None:
            self._kept.clear()
            self.under_way.clear()
            self.dropped = self.last_dropped = self.latest_dropped_ms = 0
        else:
            self._kept = deque(one for one in self._kept if not _is_of(one, account))
            self.under_way.difference_update([one for one in self.under_way if _is_of(one, account)])
        self._bytes = sum(one.size_bytes for one in self._kept)

    def entries(self) -> list[Entry]:
        """All that is kept, oldest first."""
        return [self.entry_of(one) for one in self._kept]

    def entries_under_way(self) -> list[Entry]:
        """Requests that have no answer yet, as far as they have come; their ``seq`` is 0."""
        return [self.entry_of(one) for one in self.under_way]

    def entry_of(self, recording: Recording) -> Entry:
        """What the log shows of a request, as far as it has come."""
        if recording.entry is not None:
            return recording.entry
        if recording.logged_path is not None:
            recording.entry = make_entry(recording, recording.logged_path)
            return recording.entry
        path, so_far = self._paths.look_up(recording.raw_path), copy.copy(recording)
        take_secrets_out(so_far, path)
        return make_entry(so_far, path)

    def dropped_since(self, since_ms: int | None, after: int | None) -> int:
        """How many requests of a time may have left the log, at most."""
        if since_ms is not None and self.latest_dropped_ms < since_ms:
            return 0
        return self.dropped if after is None else min(self.dropped, max(0, self.last_dropped - after))

    def find(self, seq: int) -> Entry | None:
        """The entry; None when it is not there, or no longer."""
        return next((self.entry_of(one) for one in self._kept if one.seq == seq), None)


def _is_of(request: Recording, account: int) -> bool:
    return request.caller is not None and request.caller.manufacturer_seq == account
