"""Waiting at the start for a disk that takes nothing: full, read-only, or out of quota. A restart would not mend it."""

from __future__ import annotations

import errno
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from agent.errors import StorageError

if TYPE_CHECKING:
    from agent.ports import Notifier

REFUSALS: Final = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT})
"""What a disk says that may take writes again later."""

_log = logging.getLogger(__name__)

_FIRST_S: Final = 1.0
_MOST_S: Final = 30.0
_ADVICE: Final = {
    errno.EROFS: "remount it for writing (dmesg says why it is read-only), or add it to ReadWritePaths= of the unit",
    errno.EDQUOT: "raise the quota of this user, or remove files of it",
}
_FREE: Final = "free space or inodes there (df -h, df -i)"

_ENDS: Final = frozenset({signal.SIGTERM, signal.SIGINT})

T = TypeVar("T")


def refusal(what: str, error: OSError) -> StorageError:
    """The error of a disk that refuses, with what to do about it.

    Args:
        what: the file or directory.
        error: one of :data:`REFUSALS`.
    """
    return StorageError(f"{what} cannot be written: {error.strerror}; {_ADVICE.get(error.errno or 0, _FREE)}")


def _pause(seconds: float) -> bool:
    """Wait; True when SIGTERM or SIGINT came, which are blocked."""
    return signal.sigtimedwait(_ENDS, seconds) is not None


def retry_until_disk_writable(
    step: Callable[[], T],
    notifier: Callable[[], Notifier],
    *,
    pause: Callable[[float], bool] = _pause,
) -> T:
    """Do one step of a start; while the disk refuses it, wait and try again, up to 30 s apart.

    Args:
        step: raises :class:`~agent.errors.StorageError` while the disk refuses.
        notifier: gives the service manager's; asked for only when there is something to wait for.
        pause: waits so many seconds; True when the process shall end. By default SIGTERM and SIGINT end it.

    Raises:
        SystemExit: the process shall end, with code 0.
    """
    try:
        return step()
    except StorageError as error:
        refused = error
    manager = notifier()
    wait_s, logged = _FIRST_S, ""
    # They have no handlers yet, and a process 1 would not see them at all.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        while True:
            if str(refused) != logged:
                logged = str(refused)
                _log.error("disk=waiting %s; tried again at least every %.0f s", logged, _MOST_S)
            manager.status(f"waiting for the disk: {logged}")
            manager.alive()  # after a restart in place the service manager watches already
            if pause(wait_s):
                raise SystemExit(0)
            wait_s = min(wait_s * 2, _MOST_S)
            try:
                result = step()
            except StorageError as error:
                refused = error
            else:
                _log.warning("disk=ok it takes writes again")
                return result
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
