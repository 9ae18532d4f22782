"""When each device was last seen: kept in memory, and written along with the next group of writes.

A request of a device never waits for it, and a crash loses a few seconds of presence at most.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from simulator.service.storage import devices

FLUSH_AFTER_MS: Final = 5_000
FLUSH_ROWS: Final = 5_000
"""So many devices that were seen and not written yet make a flush due at once: memory stays bounded."""


class Presence:
    """Device row -> when it was last seen, as far as it is not written yet."""

    def __init__(self) -> None:
        self._pending: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._flushed_ms = 0
        self._is_aside = False

    def touch(self, device_seq: int, now_ms: int) -> None:
        """The device was seen."""
        self._pending[device_seq] = now_ms

    def last_seen(self, device_seq: int, stored_ms: int | None) -> int | None:
        """When the device was last seen, written or not.

        Of a flush that is under way a reader sees the rows from before, so what it writes counts as well.
        """
        return self._pending.get(device_seq, self._written.get(device_seq, stored_ms))

    def seen_since(self, since_ms: int) -> set[int]:
        """The devices that were seen since then, as far as that is still in memory: the last seconds are."""
        both = list(self._written.items()) + list(self._pending.items())
        return {device_seq for device_seq, seen_ms in both if seen_ms >= since_ms}

    def is_due(self, now_ms: int) -> bool:
        """Whether to write now. A clock that was set back makes it due too."""
        pending = self._pending
        return self.is_pending and (len(pending) >= FLUSH_ROWS or not 0 <= now_ms - self._flushed_ms < FLUSH_AFTER_MS)

    @property
    def is_pending(self) -> bool:
        """Whether anything is to be written yet."""
        return bool(self._pending) and not self._is_aside

    def flush(self, connection: Connection, now_ms: int) -> None:
        """Write what is pending; :meth:`restore` takes it back when the transaction was rolled back."""
        pending = self._written = self._pending
        self._pending = {}  # the event loop adds, the writing thread takes away
        self._flushed_ms = now_ms
        devices.mark_seen(connection, dict(pending))

    def restore(self) -> None:
        """The last flush may not be stored: it is pending again, where nothing newer is."""
        for device_seq, seen_ms in list(self._written.items()):
            self._pending.setdefault(device_seq, seen_ms)

    def forget_written(self) -> None:
        """The last flush is committed, and devices of it were deleted: their row numbers may be given out again."""
        self._written = {}

    def set_aside(self) -> tuple[dict[int, int], dict[int, int]]:
        """Forget everything; write nothing until :meth:`clear`, or :meth:`put_back`, which takes what is returned."""
        aside = self._pending, self._written
        self.clear()
        self._is_aside = True
        return aside

    def put_back(self, aside: tuple[dict[int, int], dict[int, int]]) -> None:
        """What was set aside counts again, where nothing newer is."""
        self._is_aside = False
        pending, self._written = aside
        for device_seq, seen_ms in pending.items():
            self._pending.setdefault(device_seq, seen_ms)

    def clear(self) -> None:
        """Forget when devices were seen."""
        self._is_aside = False
        self._pending = {}
        self._written = {}
