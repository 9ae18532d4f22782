"""Room on the disk that is kept for commands: a file of that size, given back when the disk is full.

Readings may fill the disk, or another program may. Then the file gives its blocks back, and the few kilobytes that a
command takes from its receipt to its result can still be committed. That the blocks can be had again is the sign that
the disk is well.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


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
        """Let whoever writes next have the room."""
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
