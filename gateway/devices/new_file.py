"""A file that a program makes for itself before SQLite opens it."""

from __future__ import annotations

import os
from pathlib import Path


def create_empty(path: Path) -> None:
    """Make an empty file, mode 600, where there is none. SQLite gives its journal the same mode.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
