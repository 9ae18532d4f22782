"""What this agent costs by day: bytes sent and received over the network, bytes written to the flash.

Kept over restarts in one small setting, which rides in a commit that happens anyway, at most once an hour. So a power
cut loses at most the last hour's counts, and the count itself wears no flash.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.core.timekeeping import is_plausible

if TYPE_CHECKING:
    from agent.ports import Clock

SETTING: Final = "ledger"
"""The setting that holds the days as JSON; :func:`read_days` reads it."""

DAYS_KEPT: Final = 7

UNDATED: Final = "undated"
"""The day of what was counted before the clock was set."""

_EVERY_S: Final = 3600.0
_COLUMNS: Final = 3
_IO: Final = Path("/proc/self/io")
_NAME: Final = "write_bytes:"

Day = tuple[int, int, int]
"""Bytes sent, received, written."""


class Ledger:
    """Counts by day, UTC. Thread-safe. The store's :class:`~agent.adapters.store.shared.PiggybackSetting`.

    Args:
        clock: for the day and the hour.
        written_bytes: what this process has written to disks since it began; None where the system does not say.
    """

    def __init__(self, clock: Clock, written_bytes: Callable[[], int | None] = lambda: None) -> None:
        self._clock = clock
        self._written_bytes = written_bytes
        self._lock = threading.Lock()
        self._days: dict[str, list[int]] = {}
        self._written_before = 0
        self._saved = ""
        self._pending = ""
        self._due_s = clock.now().monotonic_s + _EVERY_S

    def load(self, text: str | None) -> None:
        """Add what earlier processes counted, as the setting holds it."""
        with self._lock:
            for day, counted in read_days(text).items():
                self._add(*counted, day=day)
            self._saved = text or ""

    def count(self, sent_bytes: int, received_bytes: int) -> None:
        """Add bytes that were sent and received over the network."""
        with self._lock:
            self._add(sent_bytes, received_bytes, 0)

    def snapshot(self) -> dict[str, Day]:
        """Day (``YYYY-MM-DD`` in UTC, or :data:`UNDATED`) -> bytes sent, received, written; the oldest first."""
        with self._lock:
            self._probe_writes()
            return {day: (counts[0], counts[1], counts[2]) for day, counts in self._days.items()}

    def pending(self, *, last: bool = False) -> tuple[str, str] | None:
        """The setting and its value, once an hour; with ``last`` whenever it has changed."""
        now_s = self._clock.now().monotonic_s
        with self._lock:
            if not last and now_s < self._due_s:
                return None
            self._probe_writes()
            self._pending = json.dumps(self._days, separators=(",", ":"))
            return None if self._pending == self._saved else (SETTING, self._pending)

    def committed(self) -> None:
        """The commit that took :meth:`pending` along is on the disk."""
        with self._lock:
            self._saved = self._pending
            self._due_s = self._clock.now().monotonic_s + _EVERY_S

    def _probe_writes(self) -> None:
        written = self._written_bytes()
        if written is not None:
            self._add(0, 0, written - self._written_before)
            self._written_before = written

    def _add(self, *counted: int, day: str | None = None) -> None:
        """Add bytes sent, received and written, to today's unless another day is named."""
        if day is None:
            wall_s = self._clock.now().wall_s
            day = datetime.fromtimestamp(wall_s, UTC).date().isoformat() if is_plausible(wall_s) else UNDATED
        counts = self._days.get(day)
        if counts is None:
            # UNDATED sorts behind every date, and so it is the last to be forgotten.
            self._days = dict(sorted({**self._days, day: [0] * _COLUMNS}.items())[-DAYS_KEPT:])
            counts = self._days.get(day)
        if counts is not None:
            for column, number in enumerate(counted):
                counts[column] += number


def written_bytes(path: Path = _IO) -> int | None:
    """What this process caused to be written to disks since it began; None where the kernel does not count it.

    Source: proc(5). Memory file systems count nothing; programs that handlers start count for themselves.
    """
    try:
        for line in path.read_text("utf-8").splitlines():
            if line.startswith(_NAME):
                return int(line.removeprefix(_NAME))
    except (OSError, ValueError):
        pass
    return None


def read_days(text: str | None) -> dict[str, Day]:
    """The setting's value by day, the oldest first; nothing of one that cannot be read."""
    try:
        found = json.loads(text or "{}")
        return {str(day): (int(counts[0]), int(counts[1]), int(counts[2])) for day, counts in sorted(found.items())}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}
