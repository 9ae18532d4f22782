"""The lock file beside the database, which keeps a second agent out."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from agent.errors import StorageError


def lock(path: Path) -> int:
    """Lock ``<path>.lock`` and return its open descriptor; the kernel releases it however the process ends.

    Raises:
        StorageError: it cannot be opened, or another process holds it; the text names the fix.
    """
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"{lock_path}: {error.strerror}: mend the state directory's owner and mode") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        text = f"another device-agent uses {path.parent}: stop it, or give this one a state_dir of its own"
        raise StorageError(text) from error
    return descriptor
