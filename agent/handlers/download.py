"""Downloads one file: bounded, resumed where it was cut off, and compared with its digest."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from agent.files import sync_directory
from agent.handlers.base import CommandContext, HandlerRejected
from agent.health import RetryPolicy
from agent.text import bounded
from agent.wire.network import trust_store

if TYPE_CHECKING:
    from agent.handlers.root_tasks import UpdateAgent

_TIMEOUT_S: Final = 30.0
_MOST_WAIT_S: Final = 60.0
_RESERVE_BYTES: Final = 8 * 1024 * 1024
"""So much stays free for readings."""
_OK: Final = 200
_PARTIAL: Final = 206
_RANGE_REFUSED: Final = 416
_SERVER_FAULT: Final = 500
_PASSING: Final = frozenset({408, 425, 429})


class _TryAgain(Exception):
    """A fault of server or network that a later request may not meet."""


def download(url: str, sha256: str, target: Path, limits: UpdateAgent.Settings, context: CommandContext) -> bool:
    """Fetch a file; False when the agent stops before that, and what is there stays for the next attempt.

    Args:
        url: of the file.
        sha256: of the file, hexadecimal.
        target: where it goes; its folder is there, and has the part that an earlier attempt left.
        limits: ``max_bytes`` of the file, and ``give_up_s``, so long it is tried again while server or network fail.
        context: of the command that wants it; its progress is reported.

    Raises:
        HandlerRejected: ``unreachable``, ``not_there``, ``too_large``, ``wrong_sha256`` or ``not_enough_disk``.
        OSError: the disk refuses.
    """
    if _sha256(target) == sha256:
        return True
    part = target.with_name(f"{sha256}.part")
    deadline_s, retries = time.monotonic() + limits.give_up_s, RetryPolicy(base_s=1.0, cap_s=_MOST_WAIT_S)
    with httpx.Client(
        verify=trust_store(context.controls.upkeep.ca_file), trust_env=False, timeout=_TIMEOUT_S
    ) as client:
        is_whole = False
        while not is_whole and not context.stopping.is_set():
            before = _size(part)
            try:
                is_whole = _fetch_rest(client, url, part, limits.max_bytes, context)
            except (httpx.TransportError, httpx.InvalidURL, _TryAgain) as error:
                if time.monotonic() >= deadline_s:
                    text = bounded(f"{url}: {error}")
                    raise HandlerRejected("unreachable", f"{text}: check its address and the network") from error
                if _size(part) > before:
                    retries.succeeded()
                context.stopping.wait(retries.failed())
    if not is_whole:
        return False
    if _sha256(part) != sha256:
        text = "the file is not the one that was announced"
        raise HandlerRejected("wrong_sha256", f"{text}: compare url and sha256 of the command")
    part.replace(target)
    sync_directory(target.parent)
    return True


def _fetch_rest(client: httpx.Client, url: str, part: Path, max_bytes: int, context: CommandContext) -> bool:
    """Take what one answer gives beside what is there; whether the file is whole."""
    have = _size(part)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    with client.stream("GET", url, headers=headers) as answer:
        status = answer.status_code
        if status == _OK:
            have = 0
        elif status in {_PARTIAL, _RANGE_REFUSED}:
            if not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                part.unlink(missing_ok=True)
                raise _TryAgain("the server does not resume")
        elif status >= _SERVER_FAULT or status in _PASSING:
            raise _TryAgain(f"the server answers {status}")
        else:
            text = bounded(f"{url} answers {status}")
            raise HandlerRejected("not_there", f"{text}: give the address of the release")
        whole = have + int(answer.headers.get("Content-Length", 0))
        found = os.statvfs(part.parent)
        free, needed = found.f_bavail * found.f_frsize, whole - have + _RESERVE_BYTES
        if free < needed:
            text = f"{part.parent} has {free} bytes free, and the update needs {needed}: free some"
            raise HandlerRejected("not_enough_disk", text)
        with part.open("ab" if have else "wb") as file:
            for chunk in answer.iter_raw():
                have += len(chunk)
                if max(have, whole) > max_bytes:
                    raise HandlerRejected("too_large", f"the file has more than max_bytes, {max_bytes}")
                if context.stopping.is_set():
                    return False
                file.write(chunk)
                context.report_progress({"phase": "downloading", "bytes": have, "of": whole})
            file.flush()
            os.fsync(file.fileno())
    if have < whole:
        raise _TryAgain("the connection was cut off")
    return not context.stopping.is_set()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    """Of a file; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
