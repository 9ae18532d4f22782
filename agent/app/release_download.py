"""Downloads a release of the agent: bounded, resumed where it was cut off, and compared with its digest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from agent.error_text import bounded
from agent.files import sync_directory
from agent.handlers.upkeep import ReleaseSource, UpkeepRefused
from agent.update.install import FILE, not_enough_disk
from agent.wire.trust import trust_store

_TIMEOUT_S: Final = 30.0
_FIRST_WAIT_S: Final = 1.0
_MOST_WAIT_S: Final = 60.0
_RESERVE_BYTES: Final = 8 * 1024 * 1024
_REPORT_EVERY_S: Final = 2.0
_OK: Final = 200
_PARTIAL: Final = 206
_RANGE_REFUSED: Final = 416
_SERVER_FAULT: Final = 500
_PASSING: Final = frozenset({408, 425, 429})


class _Passing(Exception):
    """A fault of server or network that a later request may not meet: the download is tried again."""


class ReleaseDownload:
    """One download into a folder of the agent's own.

    Args:
        source: where it is.
        ca_file: the authorities to trust; None: those of the system.
    """

    def __init__(self, source: ReleaseSource, ca_file: Path | None) -> None:
        self._source = source
        self._ca_file = ca_file
        self._part = source.folder / f"{source.sha256}.part"
        self._reported_s = float("-inf")

    def fetch(self, stopping: threading.Event, report: Callable[[int, int], None]) -> Path | None:
        """The whole file, on the disk; None when it was ended early.

        Args:
            stopping: ends it early; what is there stays for the next attempt.
            report: called now and then with the bytes that are there, and all.

        Raises:
            UpkeepRefused: ``unreachable``, ``not_there``, ``too_large``, ``wrong_sha256``, ``not_enough_disk`` or
                ``disk``.
        """
        target = self._source.folder / FILE
        try:
            self._source.folder.mkdir(mode=0o700, exist_ok=True)
            if _sha256(target) == self._source.sha256:
                return target
            for path in self._source.folder.iterdir():
                if path != self._part:
                    path.unlink()
            return self._keep(target) if self._take_all(stopping, report) else None
        except OSError as error:
            self._forget()
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise self._no_room(self._source.max_bytes) from error
            raise UpkeepRefused("disk", f"{error.filename or self._source.folder}: {error.strerror}") from error

    def _take_all(self, stopping: threading.Event, report: Callable[[int, int], None]) -> bool:
        deadline_s, wait_s = time.monotonic() + self._source.give_up_s, _FIRST_WAIT_S
        with httpx.Client(verify=trust_store(self._ca_file), trust_env=False, timeout=_TIMEOUT_S) as client:
            while not stopping.is_set():
                before = self._have()
                try:
                    if self._take(client, stopping, report):
                        return True
                except (httpx.TransportError, httpx.InvalidURL, _Passing) as error:
                    if time.monotonic() >= deadline_s:
                        text = bounded(f"{self._source.url}: {error}")
                        raise UpkeepRefused("unreachable", f"{text}: look at its address and the network") from error
                wait_s = _FIRST_WAIT_S if self._have() > before else min(2 * wait_s, _MOST_WAIT_S)
                stopping.wait(wait_s)
        return False

    def _take(self, client: httpx.Client, stopping: threading.Event, report: Callable[[int, int], None]) -> bool:
        """Take what one answer gives; True when the file is whole."""
        have = self._have()
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with client.stream("GET", self._source.url, headers=headers) as answer:
            have = self._begin(answer, have)
            whole = have + int(answer.headers.get("Content-Length", 0))
            self._check_size(whole, have)
            with self._part.open("ab") as file:
                for chunk in answer.iter_raw():
                    if stopping.is_set():
                        return False
                    file.write(chunk)
                    have += len(chunk)
                    self._check_size(have, have)
                    if time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
                        self._reported_s = time.monotonic()
                        report(have, whole)
                file.flush()
                os.fsync(file.fileno())
        if have < whole:
            raise _Passing("the connection was cut off")
        return True

    def _begin(self, answer: httpx.Response, have: int) -> int:
        """How much of the file counts before this answer's bytes."""
        status = answer.status_code
        if status == _PARTIAL and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            return have
        if status == _OK:
            self._forget()
            return 0
        if status in {_PARTIAL, _RANGE_REFUSED}:
            self._forget()
            raise _Passing("the server does not resume")
        if status >= _SERVER_FAULT or status in _PASSING:
            raise _Passing(f"the server answers {status}")
        text = bounded(f"{self._source.url} answers {status}")
        raise UpkeepRefused("not_there", f"{text}: give the address of the release")

    def _check_size(self, whole: int, have: int) -> None:
        if whole > self._source.max_bytes:
            self._forget()
            text = f"the file has more than {self._source.max_bytes} bytes"
            raise UpkeepRefused("too_large", f"{text}: see commands.handlers.update_agent.settings.max_bytes")
        if whole > have and self._free() < whole - have + _RESERVE_BYTES:
            raise self._no_room(whole - have)

    def _keep(self, target: Path) -> Path:
        if _sha256(self._part) != self._source.sha256:
            self._forget()
            text = "the file is not the one that was announced"
            raise UpkeepRefused("wrong_sha256", f"{text}: compare url and sha256 of the command")
        self._part.replace(target)
        sync_directory(target.parent)
        return target

    def _no_room(self, needed: int) -> UpkeepRefused:
        refusal = not_enough_disk(self._source.folder, needed + _RESERVE_BYTES, self._free())
        return UpkeepRefused(refusal.code, refusal.message)

    def _free(self) -> int:
        found = os.statvfs(self._source.folder.parent)
        return found.f_bavail * found.f_frsize

    def _have(self) -> int:
        try:
            return self._part.stat().st_size
        except FileNotFoundError:
            return 0

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    """Of a file; empty when there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
