"""``python -I -m agent.helper USER``: act on one request of that user's agent. systemd starts it as root.

Each step is one that the agent's user cannot turn against root: the request's directory is opened once, without
following links, and everything else goes by that descriptor; what was opened is checked, not what a name says; the file
is deleted before anything is done, so that nothing is done twice.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.helper.exchange import (
    ACCEPTED,
    ANSWER,
    FAILED,
    MAX_BYTES,
    REFUSED,
    REQUEST,
    HelperAnswer,
    HelperRequest,
    MalformedFile,
    now_s,
    parse_request,
    write_file,
)
from agent.helper.rules import CONFIGURATION, RequestDenied, judge, read_rules

_ACTION_S: Final = 20.0
_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is, and who must own it.

    Attributes:
        request: in the agent's runtime directory.
        answer: in the helper's.
        configuration: root's.
        agent_id: the agent's user.
        root_id: who must own the configuration.
    """

    request: Path
    answer: Path
    configuration: Path
    agent_id: int
    root_id: int = 0


class Unremovable(Exception):
    """The request cannot be deleted: systemd would start the helper for it again and again."""


def take_request(path: Path, owner_id: int) -> HelperRequest | None:
    """Read the request and delete it, also a bad one; None when there is none, or it was withdrawn meanwhile.

    Raises:
        MalformedFile: it is not the agent's, or not a request.
        Unremovable: it cannot be deleted.
    """
    try:
        directory = _Descriptor(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
    except FileNotFoundError:
        return None
    with closing(directory):
        try:
            data: bytes | MalformedFile = _read(directory.number, path.name, owner_id)
        except MalformedFile as fault:
            data = fault
        if not _delete(directory.number, path.name):
            return None
    if isinstance(data, MalformedFile):
        raise data
    return parse_request(data)


def serve(
    places: Places, *, clock: Callable[[], float], started_s: float, act: Callable[[Sequence[str]], str | None]
) -> int:
    """Act on the request that lies there; the exit code.

    Args:
        places: where everything is.
        clock: seconds, as :func:`agent.helper.exchange.now_s`.
        started_s: when the system was started, by the same clock.
        act: runs a program; why it failed, or None.

    Raises:
        Unremovable: see :func:`take_request`.
        OSError: the answer cannot be written; nothing was done.
    """
    try:
        request = take_request(places.request, places.agent_id)
    except MalformedFile as fault:
        _tell(f"request=malformed {fault}")
        return 1
    if request is None:
        _tell("request=none")
        return 0
    try:
        rules = read_rules(places.configuration, places.root_id)
        now = clock()
        argv = judge(request, rules, asked_ago_s=now - request.asked_s, uptime_s=now - started_s)
    except RequestDenied as refusal:
        _tell(f"request={request.id!r} action={request.action!r} refused {refusal}")
        write_file(places.answer, HelperAnswer(request.id, REFUSED, refusal.code, refusal.message[:500]), 0o644)
        return 0
    _tell(f"request={request.id!r} action={request.action} accepted")
    write_file(places.answer, HelperAnswer(request.id, ACCEPTED), 0o644)
    fault_text = act(argv)
    if fault_text is None:
        return 0
    _tell(f"request={request.id!r} action={request.action} failed: {fault_text}")
    write_file(places.answer, HelperAnswer(request.id, FAILED, "action_failed", fault_text), 0o644)
    return 1


def system_started_s(stat_file: Path = Path("/proc/1/stat")) -> float:
    """When the system manager was started, seconds since the kernel was.

    Not zero in a container, which shares the kernel and its clock with the host. Source: proc_pid_stat(5), field 22.
    """
    started_ticks = int(stat_file.read_text("ascii", "replace").rpartition(")")[2].split()[19])
    return started_ticks / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str]) -> int:
    """The whole program; the exit code."""
    if len(arguments) != 1:
        _tell("usage: python -I -m agent.helper USER; it is systemd that starts it (device-agent-helper.service)")
        return 2
    try:
        places = Places(REQUEST, ANSWER, CONFIGURATION, pwd.getpwnam(arguments[0]).pw_uid)
        return serve(places, clock=now_s, started_s=system_started_s(), act=_run)
    except KeyError:
        _tell(f"there is no user {arguments[0]!r}: run systemd-sysusers")
        return 2
    except Unremovable as error:
        _tell(f"request=unremovable {error}; nothing is done")
        time.sleep(_PAUSE_S)  # the path unit will start us again at once
        return 1
    except OSError as error:
        _tell(f"nothing is done: {error}")
        return 1


class _Descriptor:
    """A file descriptor that can be closed by ``closing``."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)


def _read(directory: int, name: str, owner_id: int) -> bytes:
    """The bytes of a file that only this user can have written."""
    if os.fstat(directory).st_uid != owner_id or os.fstat(directory).st_mode & 0o022:
        raise MalformedFile("its directory is not the agent's alone")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        file = _Descriptor(os.open(name, flags, dir_fd=directory))
    except FileNotFoundError:
        return b""  # withdrawn: deleting it says so again
    except OSError as error:
        raise MalformedFile(f"it cannot be opened as a file ({error.strerror})") from error
    with closing(file):
        found = os.fstat(file.number)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise MalformedFile("it is no regular file of one name")
        if found.st_uid != owner_id or stat.S_IMODE(found.st_mode) & 0o077:
            raise MalformedFile("it is not the agent's, or others may read or write it")
        if found.st_size > MAX_BYTES:
            raise MalformedFile(f"larger than {MAX_BYTES} bytes")
        return os.read(file.number, MAX_BYTES + 1)


def _delete(directory: int, name: str) -> bool:
    """Delete it; False when it is gone already."""
    try:
        try:
            os.unlink(name, dir_fd=directory)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unremovable(str(error)) from error
    return True


def _run(argv: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(  # argv stands in the rules
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ACTION_S, check=False, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{argv[0]}: {error}"[:500]
    if done.returncode == 0:
        return None
    lines = [*done.stderr.decode("utf-8", "replace").splitlines(), "no reason given"]
    return "".join(c if c.isprintable() else " " for c in f"{argv[0]} ended with {done.returncode}: {lines[0]}")[:500]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the journal of its unit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
