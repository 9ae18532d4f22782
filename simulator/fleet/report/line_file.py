"""A file that grows by whole lines."""

from __future__ import annotations

import os
import stat


class LineFile:
    """Each line reaches the operating system before the next one: a program that is killed leaves all of them.

    Args:
        descriptor: of the file, open for writing; closed by :meth:`close`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        about = os.fstat(descriptor)
        self._is_regular = stat.S_ISREG(about.st_mode)
        self._whole = about.st_size

    def write(self, line: bytes) -> None:
        """Add a line: all of it, or of a regular file none of it.

        Raises:
            OSError: it could not be written, such as on a full disk; the next one may be.
        """
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            if self._is_regular:
                os.ftruncate(self._descriptor, self._whole)
                os.lseek(self._descriptor, self._whole, os.SEEK_SET)
            raise
        self._whole += len(line)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
