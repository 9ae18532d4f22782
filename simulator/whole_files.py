"""Files that are there whole or not at all, and one line for a disk that does not take them."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

UNFINISHED: Final = ".unfinished"
"""An empty file in a folder whose files are being written; what was ended early is known by it, and written anew."""


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
