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

from agent.app.disk_wait import REFUSALS, refusal
from agent.errors import ConfigurationError

_TRIES: Final = 5
_BETWEEN_S: Final = 0.05


class StateLock:
    """The lock of a state directory, held as long as the process lives; the kernel frees it however the process ends.

    Args:
        state_dir: is made when it is missing, for its owner only.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "agent.lock"
        self._fd: int | None = None

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            ConfigurationError: another agent holds it, or the directory cannot be used; the text says which.
            StorageError: the disk is full or read-only; it may take the lock's file later.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno in REFUSALS:
                raise refusal(f"state_dir {self._path.parent}", error) from None
            reason = (
                f"state_dir {self._path.parent} cannot be used: {error.strerror}; choose one that this user may write"
            )
            raise ConfigurationError([reason], "state") from None
        try:
            _lock(fd)
        except OSError as error:
            holder = _holder(self._path)
            os.close(fd)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise ConfigurationError([f"{self._path} cannot be locked: {error.strerror}"], "state") from None
            reason = f"another agent{holder} uses state_dir {self._path.parent}; stop it, or give this one its own"
            raise ConfigurationError([reason], "state") from None
        self._fd = fd
        self.note_process()
        return self

    def note_process(self) -> None:
        """Write down which process holds the lock; it is held without that, too, where the disk has no room for it."""
        assert self._fd is not None  # noqa: S101 - only between enter and exit
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def holder_of(state_dir: Path) -> int | None:
    """The process that holds this directory's lock; None when no agent runs there. 0 when its id is not known."""
    path = state_dir / "agent.lock"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # whatever lies there
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else 0
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


def _holder(path: Path) -> str:
    pid = holder_of(path.parent)
    return f" (process {pid})" if pid else ""
