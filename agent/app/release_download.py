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
from agent.runtime.retry_policy import RetryPolicy
from agent.update.install import FILE, not_enough_disk
from agent.wire.network import trust_store

_TIMEOUT_S: Final = 30.0
_RESERVE_BYTES: Final = 8 * 1024 * 1024
_REPORT_EVERY_S: Final = 2.0
# Of server or network; a later request may not meet them.
_PASSING: Final = frozenset({408, 425, 429, *range(500, 600)})


class _TryAgain(Exception):
    """This answer did not give all of it; the next one may."""


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

    def fetch(self, stopping: threading.Event, report: Callable[[int, int], None]) -> Path | None:
        """The whole file, on the disk; None when it was ended early.

        Args:
            stopping: ends it early; what is there stays for the next attempt.
            report: called now and then with the bytes that are there, and all.

        Raises:
            UpkeepRefused: ``unreachable``, ``not_there``, ``too_large``, ``wrong_sha256``, ``not_enough_disk`` or
                ``disk``; nothing is left behind but what an unreachable server has given.
        """
        source, target = self._source, self._source.folder / FILE
        try:
            source.folder.mkdir(mode=0o700, exist_ok=True)
            if _sha256(target) == source.sha256:
                return target
            for path in source.folder.iterdir():
                if path != self._part:
                    path.unlink()
            if not self._take_all(stopping, report):
                return None
            if _sha256(self._part) != source.sha256:
                text = "the file is not the one that was announced: compare url and sha256 of the command"
                raise self._refused("wrong_sha256", text)
            self._part.replace(target)
            sync_directory(target.parent)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise self._no_room(source.max_bytes) from error
            raise self._refused("disk", f"{error.filename or source.folder}: {error.strerror}") from error
        return target

    def _take_all(self, stopping: threading.Event, report: Callable[[int, int], None]) -> bool:
        give_up_at_s, retries = time.monotonic() + self._source.give_up_s, RetryPolicy(base_s=1.0, cap_s=60.0)
        with httpx.Client(verify=trust_store(self._ca_file), trust_env=False, timeout=_TIMEOUT_S) as client:
            while not stopping.is_set():
                before = self._have()
                try:
                    return self._take(client, stopping, report)
                except (httpx.TransportError, httpx.InvalidURL, _TryAgain) as error:
                    if time.monotonic() >= give_up_at_s:
                        text = bounded(f"{self._source.url}: {error}")
                        raise UpkeepRefused("unreachable", f"{text}: look at its address and the network") from error
                if self._have() > before:
                    retries.succeeded()
                stopping.wait(retries.failed())
        return False

    def _take(self, client: httpx.Client, stopping: threading.Event, report: Callable[[int, int], None]) -> bool:
        """Take what one answer gives; True when the file is whole, False when it was ended early."""
        have, reported_s = self._have(), float("-inf")
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with client.stream("GET", self._source.url, headers=headers) as answer:
            have = self._begin(answer, have)
            whole = have + int(answer.headers.get("Content-Length", 0))
            self._check_size(whole)
            if self._free() < whole - have + _RESERVE_BYTES:
                raise self._no_room(whole - have)
            with self._part.open("ab") as file:
                for chunk in answer.iter_raw():
                    if stopping.is_set():
                        return False
                    file.write(chunk)
                    have += len(chunk)
                    self._check_size(have)
                    if time.monotonic() - reported_s >= _REPORT_EVERY_S:
                        reported_s = time.monotonic()
                        report(have, whole)
                file.flush()
                os.fsync(file.fileno())
        if have < whole:
            raise _TryAgain("the connection was cut off")
        return True

    def _begin(self, answer: httpx.Response, have: int) -> int:
        """How much of the file counts before this answer's bytes."""
        status = answer.status_code
        if status == httpx.codes.PARTIAL_CONTENT and answer.headers.get("Content-Range", "").startswith(
            f"bytes {have}-"
        ):
            return have
        if status == httpx.codes.OK:
            self._part.unlink(missing_ok=True)
            return 0
        if status in {httpx.codes.PARTIAL_CONTENT, httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE}:
            self._part.unlink(missing_ok=True)
            raise _TryAgain("the server does not resume")
        if status in _PASSING:
            raise _TryAgain(f"the server answers {status}")
        text = bounded(f"{self._source.url} answers {status}")
        raise self._refused("not_there", f"{text}: give the address of the release")

    def _check_size(self, size: int) -> None:
        if size > self._source.max_bytes:
            text = f"the file has more than {self._source.max_bytes} bytes"
            raise self._refused("too_large", f"{text}: see commands.handlers.update_agent.settings.max_bytes")

    def _no_room(self, needed: int) -> UpkeepRefused:
        refusal = not_enough_disk(self._source.folder, needed + _RESERVE_BYTES, self._free())
        return self._refused(refusal.code, refusal.message)

    def _refused(self, code: str, message: str) -> UpkeepRefused:
        """The refusal; what is there of the file goes."""
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)
        return UpkeepRefused(code, message)

    def _free(self) -> int:
        found = os.statvfs(self._source.folder.parent)
        return found.f_bavail * found.f_frsize

    def _have(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0


def _sha256(path: Path) -> str:
    """Of a file; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
