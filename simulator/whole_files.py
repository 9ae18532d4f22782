"""Files that are there whole or not at all, and one line for a disk that does not take them."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

UNFINISHED: Final = ".unfinished"
"""An empty file in a folder whose files are being written; what was ended early is known by it, and written anew."""
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


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o666) -> Path:
    """Write beside it and rename: whatever happens, the path holds what it held or all of the content.

    What is no regular file, such as /dev/stdout, is written to as it is.

    Args:
        path: the file; its folder must be there.
        content: all of it; text is written as UTF-8.
        mode: permission bits of a new file; the umask takes its bits from them.

    Returns:
        The path.

    Raises:
        OSError: it could not be written; nothing else is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return path
    new = target.with_name(f".{target.name}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb") as file:
            file.write(data)
        new.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    return path


def cannot_write(path: Path, error: OSError, instead: str) -> str:
    """One line: the path, why it cannot be written, and what to do.

    Args:
        path: what was to be written.
        error: why it was not.
        instead: what names another place, such as ``another --out``.
    """
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    reason = error.strerror or str(error)
    return f"cannot write {path}: {reason}; {'make room there, or ' if full else ''}give {instead}"


def disk_refusal(error: OSError) -> str | None:
    """One line on what the file system refused and what to do about it; None when the error is not of a file."""
    hint = _HINTS.get(error.errno or 0)
    if hint is None or (error.filename is None and error.errno not in _WITHOUT_A_PATH):
        return None
    what = f"{os.fsdecode(error.filename)!s}" if isinstance(error.filename, str | bytes) else "a file"
    return f"{what} cannot be written or read: {error.strerror}; {hint}"
