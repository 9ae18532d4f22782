"""Downloads one file: bounded, resumed where it was cut off, and compared with its digest."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from agent.files import sync_directory
from agent.handlers.base import HandlerRejected
from agent.retry import RetryPolicy
from agent.text import bounded
from agent.wire.network import trust_store

_TIMEOUT_S: Final = 30.0
_MOST_WAIT_S: Final = 60.0
_RESERVE_BYTES: Final = 8 * 1024 * 1024
"""So much stays free for readings."""
_REPORT_EVERY_S: Final = 2.0
_OK: Final = 200
_PARTIAL: Final = 206
_RANGE_REFUSED: Final = 416
_SERVER_FAULT: Final = 500
_PASSING: Final = frozenset({408, 425, 429})


class _TryAgain(Exception):
    """A fault of server or network that a later request may not meet."""


@dataclass(frozen=True, slots=True)
class Download:
    """One file to be fetched.

    Attributes:
        url: of the file.
        sha256: of the file, hexadecimal.
        target: where it goes; its folder is there, and has the part that an earlier attempt left.
        max_bytes: of the file.
        give_up_s: so long it is tried again while the server or the network fails, seconds.
        ca_file: the authorities to trust; None: those of the system.
    """

    url: str
    sha256: str
    target: Path
    max_bytes: int
    give_up_s: float
    ca_file: Path | None

    def fetch(self, stopping: threading.Event, report: Callable[[int, int], None]) -> bool:
        """Fetch it; False when it was ended early, and what is there stays for the next attempt.

        Args:
            stopping: ends it early.
            report: called now and then with the bytes that are there, and all.

        Raises:
            HandlerRejected: ``unreachable``, ``not_there``, ``too_large``, ``wrong_sha256`` or ``not_enough_disk``.
            OSError: the disk refuses.
        """
        if _sha256(self.target) == self.sha256:
            return True
        deadline_s, retries = time.monotonic() + self.give_up_s, RetryPolicy(base_s=1.0, cap_s=_MOST_WAIT_S)
        with httpx.Client(verify=trust_store(self.ca_file), trust_env=False, timeout=_TIMEOUT_S) as client:
            while not stopping.is_set():
                before = _size(self._part)
                try:
                    if self._take(client, stopping, report):
                        self._keep()
                        return True
                except (httpx.TransportError, httpx.InvalidURL, _TryAgain) as error:
                    if time.monotonic() >= deadline_s:
                        text = bounded(f"{self.url}: {error}")
                        raise HandlerRejected("unreachable", f"{text}: check its address and the network") from error
                if _size(self._part) > before:
                    retries.succeeded()
                stopping.wait(retries.failed())
        return False

    @property
    def _part(self) -> Path:
        return self.target.with_name(f"{self.sha256}.part")

    def _take(self, client: httpx.Client, stopping: threading.Event, report: Callable[[int, int], None]) -> bool:
        """Take what one answer gives; whether the file is whole."""
        have, reported_s = _size(self._part), 0.0
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with client.stream("GET", self.url, headers=headers) as answer:
            have = self._resume_at(answer, have)
            whole = have + int(answer.headers.get("Content-Length", 0))
            self._check_room(whole, have)
            with self._part.open("ab" if have else "wb") as file:
                for chunk in answer.iter_raw():
                    if stopping.is_set():
                        return False
                    have += len(chunk)
                    self._check_room(have, have)
                    file.write(chunk)
                    if time.monotonic() - reported_s >= _REPORT_EVERY_S:
                        reported_s = time.monotonic()
                        report(have, whole)
                file.flush()
                os.fsync(file.fileno())
        if have < whole:
            raise _TryAgain("the connection was cut off")
        return not stopping.is_set()

    def _resume_at(self, answer: httpx.Response, have: int) -> int:
        """How much of what is there counts before this answer's bytes."""
        status = answer.status_code
        if status == _PARTIAL and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            return have
        if status == _OK:
            return 0
        if status in {_PARTIAL, _RANGE_REFUSED}:
            self._part.unlink(missing_ok=True)
            raise _TryAgain("the server does not resume")
        if status >= _SERVER_FAULT or status in _PASSING:
            raise _TryAgain(f"the server answers {status}")
        text = bounded(f"{self.url} answers {status}")
        raise HandlerRejected("not_there", f"{text}: give the address of the release")

    def _check_room(self, whole: int, have: int) -> None:
        if whole > self.max_bytes:
            raise HandlerRejected("too_large", f"the file has more than max_bytes, {self.max_bytes}")
        found = os.statvfs(self.target.parent)
        free, needed = found.f_bavail * found.f_frsize, whole - have + _RESERVE_BYTES
        if whole > have and free < needed:
            text = f"{self.target.parent} has {free} bytes free, and the update needs {needed}: free some"
            raise HandlerRejected("not_enough_disk", text)

    def _keep(self) -> None:
        if _sha256(self._part) != self.sha256:
            text = "the file is not the one that was announced"
            raise HandlerRejected("wrong_sha256", f"{text}: compare url and sha256 of the command")
        self._part.replace(self.target)
        sync_directory(self.target.parent)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    """Of a file; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
