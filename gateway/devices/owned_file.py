"""A file that a command may make as root and that the gateway's user then reads and writes."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path


def create_owned(path: Path) -> None:
    """Make an empty file, mode 600, where there is none.

    Made by root it belongs to whom its directory belongs to. SQLite gives its journal the same owner.

    Raises:
        OSError: it cannot be made.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    with closing(os.fdopen(fd, "rb+")):
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(fd, owner.st_uid, owner.st_gid)
