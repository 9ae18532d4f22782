"""Whoever may change what lies in a folder decides with whose rights it is opened.

Root who opens a file of an unprivileged user opens what that user has put there: a link, a FIFO, a journal of SQLite
that names another file, a configuration that names a program. So root takes the identity of the folder's owner first.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from agent.errors import ConfigurationError

Value = TypeVar("Value")

_LINKS_MAX: Final = 40  # as the kernel follows
_FILES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Owner:
    """A user who is not root.

    Attributes:
        name: for people; the number of one without a name.
    """

    user_id: int
    group_id: int
    name: str
    groups: tuple[int, ...] = ()


def owner_of(path: Path, links: int = _LINKS_MAX) -> Owner | None:
    """The first user but root who owns something on the way to this path, links included; None where root owns it all.

    What is not there yet belongs to whom the folders before it belong to.

    Args:
        path: of a file or a folder.
        links: so many are followed.
    """
    here = Path("/")
    for step in path.absolute().parts[1:]:
        here /= step
        try:
            status = here.lstat()
            target = here.readlink() if stat.S_ISLNK(status.st_mode) else None
        except OSError:
            return None
        if status.st_uid != 0:
            return _owner(status.st_uid, status.st_gid)
        if target is not None:
            found = owner_of(here.parent / target, links - 1) if links else None
            if found is not None:
                return found
    return None


def _owner(user_id: int, group_id: int) -> Owner:
    import pwd  # only root comes here

    try:
        entry = pwd.getpwuid(user_id)
    except KeyError:
        return Owner(user_id, group_id, str(user_id), (group_id,))
    return Owner(user_id, entry.pw_gid, entry.pw_name, tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)))


def take_identity(path: Path) -> bool:
    """Where root runs this, become the owner of this path for the rest of the process; root's own changes nothing.

    Returns:
        Whether another user runs this from now on.

    Raises:
        ConfigurationError: this root may not become another user.
    """
    owner = owner_of(path) if os.geteuid() == 0 else None
    if owner is None:
        return False
    try:
        os.setgroups(owner.groups)
        os.setgid(owner.group_id)
        os.setuid(owner.user_id)
    except OSError as error:
        fault = f"{path} belongs to {owner.name}, and root may not become {owner.name} here ({error.strerror})"
        raise ConfigurationError([f"{fault}: run this as {owner.name}"], "identity") from None
    return True


def refuse_odd_files(folder: Path) -> None:
    """Refuse a folder of another user with a FIFO or a device in it: reading one would never end.

    Raises:
        ConfigurationError: there is one.
    """
    seen = 0
    for here, _, names in os.walk(folder, followlinks=True):
        for path in (Path(here, name) for name in names):
            seen += 1
            if seen > _FILES_MAX:
                return
            try:
                mode = path.stat().st_mode
            except OSError:
                continue
            if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise ConfigurationError(
                    [f"{path} is a FIFO or a device, and no file of ours is: remove it"], "identity"
                )


def as_owner_of(path: Path, do: Callable[[], Value]) -> Value:
    """Where root runs this, do something in a child process that has the identity of this path's owner.

    Args:
        path: decides whose identity; the nearest folder that is there, when it is not.
        do: called in this process where root owns the path, or where another user runs this. What it returns is what
            JSON can hold.

    Raises:
        ConfigurationError, OSError: as ``do`` raised it.
    """
    if os.geteuid() != 0 or owner_of(path) is None:
        return do()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, path, do)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        raw = pipe.read()
    os.waitpid(child, 0)
    answer = json.loads(raw or b'{"errno": 0, "reason": "its process ended without a word", "path": null}')
    if "faults" in answer:
        raise ConfigurationError(answer["faults"], answer["source"])
    if "errno" in answer:
        raise OSError(answer["errno"], answer["reason"], answer["path"])
    value: Value = answer["value"]
    return value


def _answer(writing: int, path: Path, do: Callable[[], object]) -> None:
    """The child's part; it never returns."""
    code = 1
    try:
        try:
            take_identity(path)
            answer: dict[str, object] = {"value": do()}
        except ConfigurationError as error:
            answer = {"faults": list(error.faults), "source": error.source}
        except OSError as error:
            name = None if error.filename is None else os.fspath(error.filename)
            answer = {"errno": error.errno or 0, "reason": error.strerror or str(error), "path": name}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        code = 0
    finally:
        os._exit(code)
