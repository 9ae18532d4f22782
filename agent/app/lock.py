"""Only one agent for each state directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agent.errors import ConfigurationError, StorageError

_TRIES: Final = 5
_BETWEEN_S: Final = 0.05
_REFUSALS: Final = {
    errno.ENOSPC: "free space or inodes there (df -h, df -i)",
    errno.EDQUOT: "raise the quota of this user, or remove files of it",
    errno.EROFS: "remount it for writing (dmesg says why it is read-only), or add it to ReadWritePaths= of the unit",
}


class StateLock:
    """The lock of a state directory, held as long as the process lives; the kernel frees it however the process ends.

    The directory itself is locked, so that a full disk is no obstacle.

    Args:
        state_dir: is made when it is missing, for its owner only.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._fd: int | None = None

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            ConfigurationError: another agent holds it, or the directory cannot be used; the text says which.
            StorageError: the disk, full or read-only, does not take the directory.
        """
        path = self._state_dir
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            advice = _REFUSALS.get(error.errno or 0)
            if advice is not None:
                raise StorageError(f"state_dir {path} cannot be made: {error.strerror}; {advice}") from None
            fault = f"state_dir {path} cannot be used: {error.strerror}; choose one that this user may write"
            raise ConfigurationError([fault], "state") from None
        try:
            _lock(fd)
        except OSError as error:
            os.close(fd)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise ConfigurationError([f"{path} cannot be locked: {error.strerror}"], "state") from None
            process_id = holder_of(path)
            holder = f" (process {process_id})" if process_id else ""
            fault = f"another agent{holder} uses state_dir {path}; stop it, or give this one its own"
            raise ConfigurationError([fault], "state") from None
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def holder_of(state_dir: Path) -> int | None:
    """The process that holds this directory's lock; None when no agent runs there. 0 when its id is not known."""
    try:
        fd = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _locking_process(os.fstat(fd))
    else:
        return None
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    # device-agent status holds the lock for an instant to see whether it is free: not a reason to refuse to start.
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        threading.Event().wait(_BETWEEN_S)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _locking_process(status: os.stat_result) -> int:
    """Of the kernel's list, such as ``1: FLOCK  ADVISORY  WRITE 4711 08:02:131077 0 EOF``; 0 when it is not there."""
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[3] == "WRITE" and words[5] == place:
                return int(words[4])
    return 0
