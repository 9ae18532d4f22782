"""The audit trail: every request of every device, when it was due, sent and answered, and what the answer was."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from agent.errors import ConfigurationError
from agent.wire.secret import redact
from agent.wire.times import to_rfc3339
from simulator.onboarding.exchange import Exchange
from simulator.whole_files import cannot_write

NAME: Final = "audit.jsonl"
_SHOWN: Final = frozenset(
    {"device_identifier", "what", "attempt", "method", "path", "sent_at", "status", "error", "request_id"}
)
"""What every line has that is shown of it."""


class AuditTrail:
    """Where each request is recorded."""

    def record(self, *, device: str, what: str, attempt: int, intended_at: float, exchange: Exchange) -> None:
        """Record one request and its answer.

        Args:
            device: the ``device_identifier``; empty for what concerns no single device.
            what: the action.
            attempt: 1 for the first; further ones are retries.
            intended_at: when it was due, seconds since the epoch: later sending is the run's own delay.
            exchange: what went over the wire.
        """


class NoAuditTrail(AuditTrail):
    """An audit trail that records nothing."""


class AuditFile(AuditTrail):
    """A trail as JSON lines. Thread-safe. Bodies and headers are not in it, so no secret can be.

    Args:
        path: appended to.
        run: named in each line.

    Raises:
        ConfigurationError: it cannot be written.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._number = _cut_torn_line(path)
            self._file: IO[str] = path.open("a", encoding="utf-8")
        except OSError as problem:
            raise ConfigurationError([cannot_write(path, problem, "another --out")], "--out") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # what it still holds has been refused and reported
            self._file.close()

    def record(self, *, device: str, what: str, attempt: int, intended_at: float, exchange: Exchange) -> None:
        """One request. See :class:`AuditTrail`."""
        answered = exchange.answered_s
        line = {
            "number": 0,
            "run": self._run,
            "device_identifier": device,
            "what": what,
            "attempt": attempt,
            "method": exchange.method,
            "path": exchange.path,
            "intended_at": to_rfc3339(intended_at),
            "sent_at": to_rfc3339(exchange.sent_at),
            "answered_at": None if answered is None else to_rfc3339(exchange.sent_at + answered - exchange.sent_s),
            "status": exchange.status,
            "error": exchange.error or exchange.problem or None,
            "request_id": exchange.request_id or None,
        }
        with self._lock:
            self._number += 1
            line["number"] = self._number
            try:
                self._file.write(redact(json.dumps(line, ensure_ascii=False)) + "\n")
                self._file.flush()
            except OSError as problem:
                raise ConfigurationError([cannot_write(self._path, problem, "another --out")], "--out") from None


def _cut_torn_line(path: Path) -> int:
    """Take away what a kill left of the last line; how many lines there are."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        raw = file.read()
        file.truncate(raw.rfind(b"\n") + 1)
    return raw.count(b"\n")


def is_torn(path: Path) -> bool:
    """Whether the last line of a trail, or of the one in a folder, has no end: there may have been more.

    Raises:
        OSError: it cannot be read.
    """
    raw = (path / NAME if path.is_dir() else path).read_bytes()
    return bool(raw) and not raw.endswith(b"\n")


def _read_line(line: str, where: str, number: int) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(line)
    if missing := _SHOWN - entry.keys():
        raise KeyError(missing)
    if entry.get("number", number) != number:  # earlier versions wrote none
        fault = f"{where} has the number {entry['number']}: a line is missing, doubled or moved"
        raise ConfigurationError([fault], "audit")
    return entry


def read_trail(path: Path, device: str | None = None) -> Iterator[dict[str, Any]]:
    """The lines of a trail, or of one device in it; a last line that a kill tore off is left out.

    Raises:
        ConfigurationError: it cannot be read, or lines are missing, doubled or moved: they are numbered.
    """
    file = path / NAME if path.is_dir() else path
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith("\n"):
                    return
                entry = _read_line(line, f"{file}, line {number}", number)
                if device is None or entry["device_identifier"] == device:
                    yield entry
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is no audit trail of a run"
        raise ConfigurationError([f"{file} cannot be read: {reason}"], "audit") from None
