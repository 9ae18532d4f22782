"""Only one agent for each state directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError, StorageError
from agent.text import disk_refusal

_TRIES: Final = 5
_BETWEEN_S: Final = 0.05
_THE_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of a full or read-only disk: starting again does not help, but the disk may have room later."""


@contextlib.contextmanager
def state_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock of a state directory; the kernel frees it however the process ends.

    The directory itself is locked, so that a full disk is no obstacle.

    Args:
        state_dir: is made when it is missing, for its owner only.

    Raises:
        ConfigurationError: another agent holds it, or the directory cannot be used; the text says which.
        StorageError: the disk, full or read-only, does not take the directory.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = _open(state_dir)
    except OSError as error:
        if error.errno in _THE_DISK:
            raise StorageError(f"state_dir: {disk_refusal(error)}") from None
        fault = f"state_dir {state_dir} cannot be used: {error.strerror}; choose one that this user may write"
        raise ConfigurationError([fault], "state") from None
    try:
        try:
            is_ours = _take(fd)
        except OSError as error:
            raise ConfigurationError([f"{state_dir} cannot be locked: {error.strerror}"], "state") from None
        if not is_ours:
            process_id = holder_of(state_dir)
            holder = f" (process {process_id})" if process_id else ""
            fault = f"another process{holder} uses state_dir {state_dir}; stop it, or give this one its own"
            raise ConfigurationError([fault], "state")
        yield
    finally:
        os.close(fd)


def holder_of(state_dir: Path) -> int | None:
    """The process that holds this directory's lock; None when no agent runs there. 0 when its id is not known."""
    try:
        fd = _open(state_dir)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _locking_process(os.fstat(fd))
    finally:
        os.close(fd)
    return None


def _open(state_dir: Path) -> int:
    return os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _take(fd: int) -> bool:
    """Take the lock; False when another process holds it."""
    # device-agent status holds it for an instant to see whether it is free: not a reason to refuse to start.
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_BETWEEN_S)
    return False


def _locking_process(status: os.stat_result) -> int:
    """Of the kernel's list, such as ``1: FLOCK  ADVISORY  WRITE 4711 08:02:131077 0 EOF``; 0 when it is not there."""
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[3] == "WRITE" and words[5] == place:
                return int(words[4])
    return 0
