"""Writing a file below a folder, and nowhere else, whatever is put in the way meanwhile.

Each step of the path is opened relative to the one before it and never through a symbolic link (openat(2),
``O_NOFOLLOW``), so a link that appears between a look and a write leads nowhere: there is no look, only the opening.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

_FOLDER_MODE: Final = 0o755
_NAME_BYTES: Final = 255
_PATH_PARTS: Final = 32


class OutOfBounds(Exception):
    """The path is not below the folder, or something on it is not what may be written through or over."""


def parts_below(folder: str, path: str) -> tuple[str, ...] | None:
    """The steps from a folder to a path, by name alone; None when the path is not below it.

    Args:
        folder: absolute.
        path: absolute.

    Raises:
        OutOfBounds: it has a step that no path of ours has: ``..``, a control character, a name that is too long.
    """
    steps = path.split("/")
    if not path.startswith("/") or any(step in {".", ".."} for step in steps):
        raise OutOfBounds("the path must be absolute and without '.' and '..'")
    if any(ord(character) < ord(" ") or ord(character) == 0x7F for character in path):
        raise OutOfBounds("the path holds a control character")
    names = tuple(step for step in steps if step)
    if path.endswith("/") or not names:
        raise OutOfBounds("the path must end with the name of a file")
    try:
        sizes = [len(name.encode()) for name in names]
    except UnicodeEncodeError:
        raise OutOfBounds("the path is not text that UTF-8 can write") from None
    if max(sizes) > _NAME_BYTES or len(names) > _PATH_PARTS:
        raise OutOfBounds(f"a name has at most {_NAME_BYTES} bytes, a path {_PATH_PARTS} steps")
    root = tuple(step for step in PurePosixPath(folder).parts if step != "/")
    return names[len(root) :] if names[: len(root)] == root and len(names) > len(root) else None


@contextlib.contextmanager
def opened_folder(folder: str, steps: tuple[str, ...], *, make: bool) -> Iterator[int]:
    """A descriptor of the folder that ``steps`` lead to.

    Args:
        folder: where it begins; chosen by the device's owner, so links in *its* path count.
        steps: names of folders below it.
        make: make the ones that are missing, mode 755.

    Raises:
        OutOfBounds: a step is a symbolic link or no folder.
        OSError: it could not be opened.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps:
            below = _open_subfolder(fd, step, make=make)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _open_subfolder(fd: int, name: str, *, make: bool) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise OutOfBounds(f"{name!r} on the way is a link or no folder") from None
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, _FOLDER_MODE, dir_fd=fd)
        os.fsync(fd)
    try:
        return os.open(name, flags, dir_fd=fd)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise OutOfBounds(f"{name!r} on the way is a link or no folder") from None
        raise


def replace_below(fd: int, name: str, content: bytes, mode: int) -> None:
    """Write a file in an opened folder: the old one or the new one at every instant, also after a power cut.

    Raises:
        OutOfBounds: what has this name now is not a plain file of this user.
        OSError: it could not be written; what was there is there.
    """
    _check_target(fd, name)
    temporary = f".{os.urandom(8).hex()}.new"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
    try:
        try:
            with os.fdopen(os.dup(file), "wb") as stream:
                stream.write(content)
            os.fchmod(file, mode)
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=fd)
        raise
    os.fsync(fd)


def _check_target(fd: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise OutOfBounds(f"{name!r} is a symbolic link; remove it on the device first")
    if not stat.S_ISREG(found.st_mode):
        raise OutOfBounds(f"{name!r} is no plain file")
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise OutOfBounds(f"{name!r} runs with other rights (setuid or setgid)")
    if found.st_uid != os.geteuid():
        raise OutOfBounds(f"{name!r} belongs to another user")
    if found.st_nlink > 1:
        raise OutOfBounds(f"{name!r} has other names (hard links) that would keep the old content")
