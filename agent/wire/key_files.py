"""Files that hold keys: read with an eye on who else can, written where none is yet."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError

MAX_FILE_BYTES: Final = 4096


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a key's file where no file is yet; it is on the disk on return.

    Raises:
        FileExistsError: there is one; it is left alone.
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # half a key would be in the way of the next attempt
        raise


def read_key_file(path: Path, *, others_may_not: int = 0) -> bytes:
    """What a key's file holds.

    Args:
        path: the file.
        others_may_not: mode bits that it must not have.

    Raises:
        ConfigurationError: it cannot be read, is no file or too large, or has one of those bits.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise key_fault(path, "is no regular file; name the file itself")
            if status.st_mode & others_may_not:
                what = "write" if others_may_not == stat.S_IWOTH else "open"
                fix = "644" if others_may_not == stat.S_IWOTH else "600"
                mode = stat.S_IMODE(status.st_mode)
                raise key_fault(path, f"others on this machine can {what} it (mode {mode:o}); run chmod {fix} on it")
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise key_fault(path, f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise key_fault(path, "is too large for a key; name the key's own file")
    return raw


def key_fault(path: Path, sentence: str) -> ConfigurationError:
    """The error that names the file; ``sentence`` never repeats what the file holds."""
    return ConfigurationError([f"{path}: {sentence}"], "keys")
