"""A temporary data folder for a service that was started without one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.file_lock import lock_file

PREFIX: Final = "device-service-"
NEW_S: Final = 60
"""A folder younger than that may be one whose service has not locked it yet."""


class TemporaryFolder:
    """A private folder below the system's temporary one, removed when it is closed.

    It is locked meanwhile, so that systemd-tmpfiles leaves it alone however long nothing in it changes. Folders of
    services that were killed are removed by the next one; not on Windows, where a folder cannot be locked.

    Raises:
        ConfigurationError: none can be made.
    """

    def __init__(self) -> None:
        try:
            for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
                _remove_left_behind(folder)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._descriptor = _lock(self.path)
        except OSError as exc:
            raise ConfigurationError(
                [f"no temporary folder can be made: {exc.strerror or exc}; set TMPDIR, or give a folder with --data"]
            ) from None

    def close(self) -> None:
        """Remove it with all that it holds."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _remove_left_behind(folder: Path) -> None:
    try:
        if time.time() - folder.stat().st_mtime < NEW_S:
            return
        descriptor = _lock(folder)
    except OSError:  # a service uses it, it is another user's, or it is gone by now
        return
    if descriptor is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    if sys.platform == "win32":
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock_file(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
