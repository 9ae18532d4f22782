"""Files of a folder that anybody may have put something into: regular ones only, and none by way of a link.

A link, a pipe or a device in a run's folder would lead out of it, or never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError, StorageError

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_ENTRIES_MAX: Final = 10_000


def open_plain(path: Path) -> int | None:
    """A descriptor for reading a regular file; None when there is none. The folders above it may be links.

    Raises:
        StorageError: it is a link or no regular file, or cannot be read.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "is a link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise StorageError(f"{path.name} {why}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path.name} is no regular file")
    return descriptor


def read_plain(path: Path, bytes_max: int) -> bytes | None:
    """The content of a regular file; None when there is none.

    Raises:
        StorageError: see :func:`open_plain`; or it is larger.
    """
    descriptor = open_plain(path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise StorageError(f"{path.name} is larger than {bytes_max // (1024 * 1024)} MB")
    return content


def check_plain(folder: Path) -> None:
    """Refuse a folder in which anything is neither a regular file nor a folder: programs that read it follow links.

    Raises:
        ConfigurationError: names what is in the way.
    """
    if folder.is_symlink():
        raise ConfigurationError([f"{folder.name} is a link: a run is a folder of its own"])
    left = _ENTRIES_MAX
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            left -= 1
            mode = (Path(place) / name).lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise ConfigurationError([f"{folder.name}: {name} is a link, or no regular file: take it away first"])
            if left < 0:
                raise ConfigurationError([f"{folder.name} holds more than {_ENTRIES_MAX:,} files: it is no run's"])
