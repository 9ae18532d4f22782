"""Locks on open files, on Windows too: kept until the file is closed or the process ends, whatever way it ends."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import msvcrt

    def lock_file(descriptor: int, *, wait: bool = False) -> None:
        """Lock the file for this process alone.

        Args:
            descriptor: of the open file.
            wait: until whoever has the lock gives it back; ten seconds at most on Windows.

        Raises:
            OSError: somebody else has it.
        """
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock_file(descriptor: int, *, wait: bool = False) -> None:
        """Lock the file for this process alone.

        Args:
            descriptor: of the open file.
            wait: until whoever has the lock gives it back.

        Raises:
            OSError: somebody else has it.
        """
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
