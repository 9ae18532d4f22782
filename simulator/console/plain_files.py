"""Files of a folder that anybody may have put something into: regular ones only, and none by way of a link.

A link, a pipe or a device in a run's folder would lead out of it, or never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from agent.errors import StorageError

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NAME_BYTES: Final = 255


def is_name(text: str) -> bool:
    """Whether a text can name a run's folder or a file in it: one part of a path, and not hidden."""
    return (
        0 < len(text.encode("utf-8", "replace")) <= _NAME_BYTES
        and not text.startswith(".")
        and "/" not in text
        and "\\" not in text
        and text.isprintable()
    )


def read_plain(path: Path, *, first: int = 0, bytes_max: int) -> bytes | None:
    """At most ``bytes_max`` bytes of a regular file from the byte ``first`` on; None when there is no such file.

    The folders above it may be links.

    Raises:
        StorageError: it is a link or no regular file, or cannot be read.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        is_link = isinstance(error, OSError) and error.errno == errno.ELOOP
        raise StorageError(f"{path.name} {'is a link' if is_link else f'cannot be read: {error}'}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(f"{path.name} is no regular file")
        file.seek(first)
        return file.read(bytes_max)
