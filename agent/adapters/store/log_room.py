"""Zeros at the end of the write-ahead log, so that a small commit overwrites and does not make the file grow.

A file that grows costs the file system more than its data: it allocates a block, which dirties bitmap and group
descriptor, and with a journal the new size goes through that as well. On ext4 a commit of one reading costs the disk
9.7 KB where the log grows and 5.8 KB where it does not. So whenever SQLite has reached the log's end, the next 64 KiB
are allocated in one go. They need no sync: the next commit's brings them along, and without them nothing is missing.

SQLite never looks at what lies behind its last frame, except when it recovers a log, and there a frame counts only with
the salts of the log's head and with the right checksum. Zeros have neither, like the remains of an older round of the
log that usually lie there. The file may be opened besides SQLite: its locks are on the database.

Source: sqlite.org/fileformat2.html, section 4.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent.adapters.store.room import FreeBytes

STEP_BYTES: Final = 64 * 1024

# A disk with less room than this keeps what it has.
_FREE_MIN_BYTES: Final = 16 * 1024 * 1024
# Written one by one: the kernel keeps what one call writes in one large piece of its cache, and counts all of it as
# written again whenever a commit touches a part.
_ZEROS: Final = bytes(4096)


class LogRoom:
    """The room ahead in one log.

    Args:
        database: whose log.
        most_bytes: where SQLite writes the log back and begins anew; it needs no room beyond that.
        free_bytes: of the file system.
    """

    def __init__(self, database: Path, most_bytes: int, free_bytes: FreeBytes) -> None:
        self._path = database.with_name(f"{database.name}-wal")
        self._most_bytes = most_bytes
        self._free_bytes = free_bytes
        self._size_bytes = 0

    def follow(self) -> None:
        """After a commit: add room if the log has grown. A disk that refuses keeps the log as it is."""
        with suppress(OSError):
            size_bytes = self._path.stat().st_size
            if size_bytes == self._size_bytes:
                return
            self._size_bytes = size_bytes
            free_bytes = self._free_bytes()
            if size_bytes < self._most_bytes and (free_bytes is None or free_bytes >= _FREE_MIN_BYTES):
                self._size_bytes = self._add_zeros(size_bytes, min(size_bytes + STEP_BYTES, self._most_bytes))

    def _add_zeros(self, at: int, until: int) -> int:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while at < until:
                at += os.pwrite(descriptor, _ZEROS[: min(until - at, len(_ZEROS) - at % len(_ZEROS))], at)
        finally:
            os.close(descriptor)
        return at
