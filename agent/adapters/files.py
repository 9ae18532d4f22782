"""Files that are whole at every instant."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def replace_file(path: Path, content: str | bytes, mode: int, *, durable: bool = False) -> None:
    """Write beside it and rename, so that a crash leaves the old file or the new one and never half of it.

    Args:
        path: the file; its directory must be there.
        content: all of it; text is written as UTF-8.
        mode: permission bits, set before anything is written.
        durable: the new file is there also after a power cut right after this; else it may be the old one again.

    Raises:
        OSError: it could not be written; nothing else is left behind.
    """
    temporary = path.with_name(f".{path.name}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            os.fchmod(fd, mode)
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Bring a directory's own entries to the disk: without it a rename or a deletion may be undone by a power cut.

    Raises:
        OSError: it could not be done.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def give_to(path: Path, owner: str | int) -> None:
    """Let a user of this machine have the file, when root runs this and there is such a user; else leave it.

    Raises:
        OSError: it could not be given away.
    """
    if os.geteuid() == 0:
        try:
            shutil.chown(path, owner, owner)
        except LookupError:
            return
