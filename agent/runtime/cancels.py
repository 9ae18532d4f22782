"""The cancels of commands that have begun: kept in the journal, so that a crash does not undo them."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Final

from agent.errors import StorageError

if TYPE_CHECKING:
    from agent.ports import Journal

_log = logging.getLogger(__name__)

SETTING: Final = "canceled"
"""Name of the journal's setting: a JSON object, command id -> who took it back."""

_KEPT_MAX: Final = 100


class Cancels:
    """The cancels of commands that have no outcome yet, with their reasons. Thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._kept: dict[str, str] = {}

    def load(self) -> dict[str, str]:
        """What an earlier process left: command id -> who took it back.

        Raises:
            StorageError: the journal cannot be read.
        """
        try:
            kept = json.loads(self._journal.setting(SETTING) or "{}")
        except ValueError:
            kept = {}
        with self._lock:
            self._kept = {str(each): str(why) for each, why in kept.items()} if isinstance(kept, dict) else {}
            return dict(self._kept)

    def add(self, command_id: str, why: str) -> None:
        """Remember it; the oldest go beyond a bound. A journal that fails is logged: the cancel goes on without it."""
        with self._lock:
            self._kept[command_id] = why
            while len(self._kept) > _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._write()

    def drop(self, command_id: str) -> None:
        """The command has its outcome."""
        with self._lock:
            if self._kept.pop(command_id, None) is not None:
                self._write()

    def _write(self) -> None:
        try:
            self._journal.put_setting(SETTING, json.dumps(self._kept) if self._kept else None)
        except StorageError as error:
            _log.error("journal=failing: a cancel is not remembered beyond a crash: %s", error)
