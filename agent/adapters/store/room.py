"""How much room the store has left: of its own bound and of the file system.

What counts is what is on the disk. The file never shrinks (there is no VACUUM: it would write everything anew and need
as much room again), but SQLite takes pages that became free before it lets the file grow. So the pages in use are what
is bounded; the file is as large as they ever were. The write-ahead log and the reserve count with the most that they
may take.

The reserve is room that is kept for commands: a file of that size, given back when the disk is full. Then the few
kilobytes that a command takes from its receipt to its result can still be committed. That its blocks can be had again
is the sign that the disk is well.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent.adapters.store.schema import PAGE_BYTES, load_bytes, wal_bytes
from agent.core.outbox import RELIEVED_AT, Bounds, DropReason

FreeBytes = Callable[[], int | None]
"""How much of the file system unprivileged programs may still take, bytes; None when it cannot be measured."""


def free_bytes_beside(path: Path) -> FreeBytes:
    """The file system that this file lies on, by ``statvfs``."""

    def measure() -> int | None:
        try:
            found = os.statvfs(path.parent)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    return measure


class DiskRoom:
    """The room over one connection.

    Args:
        connection: the store's; asked inside its transaction, so that what a commit is about to take counts.
        bounds: how much may be used, and how much of the file system must stay free.
        free_bytes: of the file system.
    """

    def __init__(self, connection: sqlite3.Connection, bounds: Bounds, free_bytes: FreeBytes) -> None:
        self._db = connection
        self._free_bytes = free_bytes
        self._keep_free_bytes = bounds.keep_free_bytes
        # A commit takes new pages before it frees those of what gives way.
        beside_bytes = wal_bytes(bounds.max_bytes) + load_bytes(bounds.max_bytes) + bounds.reserve_bytes
        self._limit_bytes = bounds.max_bytes - beside_bytes
        # While others need the file system, the file may not grow beyond what it was then.
        self._frozen_bytes: int | None = None

    def excess(self) -> tuple[int, DropReason]:
        """How many bytes too many are in use, and by which bound; a negative number is room."""
        used_bytes, file_bytes = self._sizes()
        own = used_bytes - self._limit_bytes
        if not self._is_short():
            return own, DropReason.BYTES
        if self._frozen_bytes is None:
            self._frozen_bytes = file_bytes
        shared = used_bytes - self._frozen_bytes
        return (shared, DropReason.FREE_DISK) if shared > own else (own, DropReason.BYTES)

    def is_relieved(self) -> bool:
        """The bounds are no longer near."""
        return not self._is_short() and self._sizes()[0] < RELIEVED_AT * self._limit_bytes

    def _is_short(self) -> bool:
        free_bytes = self._free_bytes() if self._keep_free_bytes else None
        is_short = free_bytes is not None and free_bytes < self._keep_free_bytes
        if not is_short:
            self._frozen_bytes = None
        return is_short

    def _sizes(self) -> tuple[int, int]:
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (unused,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return (pages - unused) * PAGE_BYTES, pages * PAGE_BYTES


class Reserve:
    """The file, beside the database.

    Args:
        path: where.
        size_bytes: how much; 0 keeps nothing and is always there.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes

    def take(self) -> bool:
        """Have the room, from now on or still; False when the disk does not give it."""
        if not self._size_bytes:
            self._remove()
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            found = os.fstat(descriptor)
            if found.st_size != self._size_bytes or found.st_blocks * 512 < self._size_bytes:
                os.ftruncate(descriptor, 0)
                os.posix_fallocate(descriptor, 0, self._size_bytes)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            return False
        finally:
            os.close(descriptor)
        return True

    def give_back(self) -> None:
        """Free the room for the next commit."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, 0)
                # Some file systems hand freed blocks out again only after their own commit.
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
