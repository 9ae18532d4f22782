"""Levels of the log that hold for a time: ``log_level`` sets them, the clock takes them back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from agent.core.values import JsonObject
from agent.handlers.upkeep import UpkeepRefused

# Their lines hold addresses and headers, so keys.
_SECRETIVE: Final = frozenset({"httpx", "httpcore", "paho"})

WAITING_MAX: Final = 100
"""So many levels may wait for the end of their time."""

_log = logging.getLogger(__name__)


class LogLevels:
    """Overrides by logger. None survives a restart, so a level that was left on by mistake ends with it.

    Args:
        schedule: ``(delay_s, call)``: calls later, on the monotonic clock.
    """

    def __init__(self, schedule: Callable[[float, Callable[[], object]], object]) -> None:
        self._schedule = schedule
        # Logger -> its level before, and which override is the one in force.
        self._before: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._waiting: set[int] = set()
        self._held = logging.NOTSET

    def set(self, level: str, for_s: float, name: str) -> JsonObject:
        """Set ``level`` for ``for_s`` seconds; 0 takes back what is set.

        Raises:
            UpkeepRefused: the lines of this logger hold secrets, or too many levels wait for the end of their time.
        """
        if name.split(".", 1)[0] in _SECRETIVE:
            raise UpkeepRefused("not_allowed", f"the lines of {name!r} hold keys; its level stays as it is")
        if for_s > 0 and len(self._waiting) >= WAITING_MAX:
            text = f"{WAITING_MAX} levels wait for their end: set them for a shorter time, or restart the agent"
            raise UpkeepRefused("too_many", text)
        logger = logging.getLogger(name or None)
        was = logging.getLevelName(logger.getEffectiveLevel()).lower()
        self._turn += 1
        turn = self._turns[name] = self._turn
        if for_s <= 0:
            self._end(name, turn)
        else:
            self._before.setdefault(name, logger.level)
            logger.setLevel(level.upper())
            if not name:
                self._held = logger.level
            self._waiting.add(turn)
            self._schedule(for_s, lambda: self._time_is_over(name, turn))
        now = logging.getLevelName(logger.getEffectiveLevel()).lower()
        _log.warning("log_level=%s logger=%s for_s=%.0f before=%s", now, name or "all", for_s, was)
        return {"logger": name or "all", "level": now, "for_s": for_s, "before": was}

    def set_up_anew(self) -> None:
        """The log was set up from the configuration: that is what counts when what is set here ends."""
        if "" in self._before:
            root = logging.getLogger()
            self._before[""] = root.level
            root.setLevel(self._held)

    def _time_is_over(self, name: str, turn: int) -> None:
        self._waiting.discard(turn)
        self._end(name, turn)

    def _end(self, name: str, turn: int) -> None:
        if self._turns.get(name) != turn:
            return  # another one was set meanwhile
        del self._turns[name]
        if name not in self._before:
            return
        logging.getLogger(name or None).setLevel(self._before.pop(name))
        _log.warning("log_level=back logger=%s", name or "all")
