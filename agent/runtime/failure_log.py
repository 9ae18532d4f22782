"""Logs errors that repeat: each failure once in a while, with how often it came in between; floods by their count."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

REPEAT_AFTER_S: Final = 300.0
"""The same complaint is written again only after this long: a dead network must not fill the flash with logs."""
_MINUTE_S: Final = 60.0
# So many different failures are remembered; beyond it the oldest is forgotten and may be reported anew.
_MOST: Final = 256


@dataclass(slots=True)
class _Reported:
    at_s: float
    unsaid: int = 0


class FailureLog:
    """One service's failures. Used from that service's thread only.

    Args:
        log: where to.
        monotonic: seconds on the monotonic clock.
        every_s: how soon the same failure may be reported again, seconds.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float], every_s: float) -> None:
        self._log = log
        self._monotonic = monotonic
        self._every_s = every_s
        self._reported: dict[str, _Reported] = {}

    def report(self, topic: str, text: str, *, every_s: float | None = None, level: int = logging.WARNING) -> None:
        """Write a line unless the same failure was reported lately.

        Args:
            topic: what makes two failures the same.
            text: one line: what happened, and what to do about it.
            every_s: instead of the usual time between two lines.
            level: of the line.
        """
        now_s = self._monotonic()
        last = self._reported.get(topic)
        if last is not None and now_s - last.at_s < (self._every_s if every_s is None else every_s):
            last.unsaid += 1
            return
        again = f" (and {last.unsaid} times more since the last line)" if last is not None and last.unsaid else ""
        self._log.log(level, "%s%s", text, again)
        self._reported.pop(topic, None)
        self._reported[topic] = _Reported(now_s)
        if len(self._reported) > _MOST:
            del self._reported[next(iter(self._reported))]

    def recovered(self, topic: str, text: str) -> None:
        """The failure is over: say so, if it was ever reported."""
        if self._reported.pop(topic, None) is not None:
            self._log.info("%s", text)


class LineRate:
    """Lines of one kind of which there may be very many: some a minute; how many were left out follows later.

    Args:
        log: where to.
        monotonic: seconds on the monotonic clock.
        level: of all lines.
        most: so many lines of the kind in a minute.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float], level: int, most: int = 20) -> None:
        self._log = log
        self._monotonic = monotonic
        self._level = level
        self._most = most
        self._begun_s = float("-inf")
        self._asked = 0

    def write(self, text: str, *values: object) -> None:
        """Write the line, or count it."""
        now_s = self._monotonic()
        if now_s - self._begun_s >= _MINUTE_S:
            if self._asked > self._most:
                self._log.log(self._level, "%d more lines like the next one were left out", self._asked - self._most)
            self._begun_s, self._asked = now_s, 0
        self._asked += 1
        if self._asked <= self._most:
            self._log.log(self._level, text, *values)
