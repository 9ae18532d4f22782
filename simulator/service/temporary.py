"""A temporary folder that is gone when the process is, however it ends: keys and tokens lie in some of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, Self

from agent.errors import ConfigurationError
from simulator.file_lock import lock_file

PREFIX: Final = "device-service-"
_REMOVE_AFTERWARDS: Final = 'read -r end; rm -rf -- "$1"'
"""The input of this script ends when the process that holds its other end has ended, by SIGKILL too."""


class TemporaryFolder:
    """A private folder below the system's temporary one, removed when it is closed or the process is killed.

    It is locked meanwhile, so that systemd-tmpfiles leaves it alone however long nothing in it changes. Where there is
    no ``sh`` it stays after a kill.

    Raises:
        ConfigurationError: none can be made.
    """

    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        try:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            if sys.platform != "win32":
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                lock_file(self._lock)
        except OSError as exc:
            fix = f"no temporary folder can be made: {exc.strerror or exc}; set TMPDIR, or give a folder with --data"
            raise ConfigurationError([fix], "--data") from None
        shell = shutil.which("sh")
        if shell is not None:
            self._guard = subprocess.Popen(
                [shell, "-c", _REMOVE_AFTERWARDS, "sh", str(self.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what ends this process's group must not end it
            )

    def close(self) -> None:
        """Remove it with all that it holds."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
