"""What the file system refused, in one line that says what to do about it."""

from __future__ import annotations

import errno
import os
from typing import Final

_HINTS: Final = {
    errno.ENOSPC: "make room there, or name another folder",
    errno.EDQUOT: "make room there, or name another folder",
    errno.EFBIG: "allow larger files, or name another folder",
    errno.EROFS: "name a folder that can be written",
    errno.EACCES: "name a folder that this user may write",
    errno.EPERM: "name a folder that this user may write",
    errno.ENOENT: "make it first, or name another one",
    errno.ENOTDIR: "name a folder",
    errno.EISDIR: "name a file",
    errno.ENAMETOOLONG: "name a shorter one",
    errno.EIO: "the disk fails; name another folder",
}
_WITHOUT_A_PATH: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Errors that only a file system has; the others may be a socket's when they name no file."""


def disk_refusal(error: OSError) -> str | None:
    """One line on what the file system refused and what to do about it; None when the error is not of a file."""
    hint = _HINTS.get(error.errno or 0)
    if hint is None or (error.filename is None and error.errno not in _WITHOUT_A_PATH):
        return None
    what = f"{os.fsdecode(error.filename)!s}" if isinstance(error.filename, str | bytes) else "a file"
    return f"{what} cannot be written or read: {error.strerror}; {hint}"
