"""Files that are whole at every instant."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from pathlib import Path


def restrict_umask() -> None:
    """Let nobody but the owner write what this process and its children make, where the mask says nothing about it.

    A mask that lets everybody write (000, as some containers and init scripts have it) is nobody's wish. Any other one
    is left alone: 002 lets a group share a folder, 077 keeps everybody out.
    """
    before = os.umask(0o077)
    os.umask(before if before & stat.S_IWOTH else before | stat.S_IWGRP | stat.S_IWOTH)


def replace_file(
    path: Path, content: str | bytes, mode: int, *, durable: bool = False, group: str | None = None
) -> None:
    """Write beside it and rename, so that a crash leaves the old file or the new one and never half of it.

    Args:
        path: the file; its directory must be there.
        content: all of it; text is written as UTF-8.
        mode: permission bits, set before anything is written.
        durable: the new file is there also after a power cut right after this; else it may be the old one again.
        group: where root writes, the file stays root's, and this user's group may read it; a user that is not there
            changes nothing.

    Raises:
        OSError: it could not be written; nothing else is left behind.
    """
    temporary = path.with_name(f".{path.name}.new")
    reader = None if group is None else _user(group)
    with contextlib.suppress(FileNotFoundError):  # of a process that was killed
        temporary.unlink()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            if reader is not None:
                os.fchown(fd, -1, reader.pw_gid)
                mode |= stat.S_IRGRP
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


def _user(name: str) -> pwd.struct_passwd | None:
    """The user of this name; None where there is none, or another one than root runs this."""
    try:
        return pwd.getpwnam(name) if os.geteuid() == 0 else None
    except KeyError:
        return None


def give_to(path: Path, name: str) -> None:
    """Let a user of this machine have what root has just made in a folder of root's; a link is given, not followed.

    It does nothing where another user runs this, or where there is no such user.

    Raises:
        OSError: it could not be given away.
    """
    user = _user(name)
    if user is not None:
        os.lchown(path, user.pw_uid, user.pw_gid)


def read_plain_file(path: Path, max_bytes: int) -> bytes:
    """So many bytes of a regular file; a FIFO or a device is refused instead of waited for.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(max_bytes)
