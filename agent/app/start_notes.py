"""Failed starts, counted on the disk, so that an agent that keeps crashing starts in safe mode.

A start is noted on the disk before anything can go wrong, and taken back when it ended in order or stayed up long
enough. What is left are the starts that a crash, a kill or a power cut ended: of those in a row safe mode is made.

Nothing here needs a right clock: within one boot the monotonic clock says how long ago a start was, and of an earlier
boot it is enough that its start never came to be healthy.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

from agent.adapters.files import replace_file, sync_directory
from agent.app.version import VERSION
from agent.config.safe_mode import SafeModeConfig
from agent.core.values import Moment

FILE_NAME: Final = "starts.json"

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 16 * 1024
_MOST_MARKS: Final = 32
_REASON_CHARACTERS: Final = 500
_NO_WORD: Final = "it ended without a word: killed, out of memory, or the power was cut"
_PAUSE_S: Final = 5.0
_MOST_PAUSE_S: Final = 300.0


class StartNotes:
    """The notes of one state directory; one process has them at a time, since it holds the directory's lock.

    A disk that refuses is logged and costs the notes, never the start.

    Args:
        state_dir: where the notes lie.

    Attributes:
        is_safe: this process runs in safe mode.
        why: why it does, one sentence; empty when it does not.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._marks: list[tuple[str, float]] = []
        self._rounds = 0
        self._last = ""
        self._extra = 0
        self.is_safe = False
        self.why = ""

    def begin(self, now: Moment) -> None:
        """Note this start. Before anything that might end it."""
        found = _read(self._path)
        if found.get("version", VERSION) != VERSION:
            found = {}  # the starts of another version say nothing about this one
        self._marks = [(str(boot), float(at_s)) for boot, at_s in found.get("starts", [])][-_MOST_MARKS:]
        self._rounds = int(found.get("rounds", 0))
        if self._marks:
            self._last = str(found.get("reason") or _NO_WORD)
        self._marks.append((now.boot_id, now.monotonic_s))
        self._write("")

    def judge(self, limits: SafeModeConfig) -> bool:
        """Whether this process shall run in safe mode; once the configuration is there. True when it shall."""
        if not self._marks:
            return False
        boot_id, now_s = self._marks[-1]
        lately = [(boot, at_s) for boot, at_s in self._marks if boot != boot_id or now_s - at_s <= limits.window_s]
        self._marks = lately
        before = len(lately) - 1
        # Out of safe mode a single failure leads back into it: the cause was there a moment ago.
        limit = limits.starts if self._rounds == 0 else 1
        self.is_safe = limits.starts > 0 and before >= limit
        if self.is_safe:
            self._extra = before - limit
            least_s = limits.healthy_after_s
            self.why = f"{before} start(s) in a row did not stay up for {least_s:g} s; the last one: {self._last}"
            # Kept, so that the reason is there should safe mode itself be cut off.
            self._write(self._last)
        return self.is_safe

    def pause_s(self) -> float:
        """How long to wait before this start goes on: safe mode that dies as well must not spin."""
        return min(_PAUSE_S * 2.0**self._extra, _MOST_PAUSE_S) if self._extra else 0.0

    def lasts_s(self, limits: SafeModeConfig) -> float:
        """After how long in safe mode all is tried again."""
        return min(limits.first_s * 2.0 ** min(self._rounds, 30), limits.most_s)

    def crashed(self, reason: str) -> None:
        """Note why this process failed."""
        self._write(" ".join(reason.split())[:_REASON_CHARACTERS])

    def ended_in_order(self) -> None:
        """Note that this process was asked to end: its start does not count. Safe mode is over with it."""
        if self.is_safe:
            self._marks = []
            self._rounds += 1
        else:
            self._marks = self._marks[:-1]
        self._write(self._last)

    def fresh(self) -> None:
        """Forget the notes: another configuration is in force."""
        self._marks, self._rounds, self._last = self._marks[-1:], 0, ""
        self._write("")

    def healthy(self) -> None:
        """Forget all notes, since this process stayed up; in safe mode they stay.

        Every start comes by here, so a lone mark goes without a sync of the disk. The kernel does that within half a
        minute; a power cut before may bring the mark back, and then counts as one start that came to nothing. What is
        near to safe mode, or was in it, is forgotten for certain.
        """
        if not self.is_safe:
            is_lone = len(self._marks) == 1 and self._rounds == 0
            self._marks, self._rounds, self._last = [], 0, ""
            self._write("", durable=not is_lone)

    def _write(self, reason: str, *, durable: bool = True) -> None:
        members = {
            "starts": self._marks[-_MOST_MARKS:],
            "rounds": self._rounds,
            "reason": reason,
            "version": VERSION,
        }
        try:
            if self._marks or self._rounds:
                replace_file(self._path, json.dumps(members), 0o600, durable=durable)
            else:
                self._path.unlink(missing_ok=True)
                if durable:
                    sync_directory(self._path.parent)
        except OSError as error:
            _log.warning("starts=not_noted %s: %s; safe mode may not come when it should", self._path, error)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        marks = [(str(boot), float(at_s)) for boot, at_s in found.get("starts", [])]
        return {
            "starts": marks,
            "rounds": int(found.get("rounds", 0)),
            "reason": str(found.get("reason", "")),
            "version": str(found.get("version", VERSION)),
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
