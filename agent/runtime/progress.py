"""What a running command tells about how far it is: bounded in rate, and never after its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.core.values import JsonObject, Report

if TYPE_CHECKING:
    from agent.ports import Clock

IN_PROGRESS: Final = "in_progress"


class Progress:
    """The progress of one run. Thread-safe, since a handler that was given up may still speak.

    The newest word counts: what comes too soon waits for its turn, in the place of what waited before.

    Args:
        command_id: of which command.
        post: takes a report; it may lose it.
        clock: both clocks.
        every_s: one report in this time at most, seconds.
    """

    def __init__(self, command_id: str, post: Callable[[Report], object], clock: Clock, every_s: float) -> None:
        self._command_id = command_id
        self._post = post
        self._clock = clock
        self._every_s = every_s
        self._lock = threading.Lock()
        self._waiting: Report | None = None
        self._not_before_s = float("-inf")
        self._is_over = False

    def report(self, result: JsonObject) -> None:
        """It has come this far."""
        with self._lock:
            self._waiting = self._report(result)
        self.flush()

    def report_long(self) -> None:
        """It takes long; no news when it has told something before."""
        with self._lock:
            is_news = self._waiting is None and self._not_before_s == float("-inf")
            if is_news:
                self._waiting = self._report(None)
        self.flush()

    def flush(self) -> None:
        """Send what waits, if its time has come."""
        now_s = self._clock.now().monotonic_s
        with self._lock:
            if self._waiting is None or self._is_over or now_s < self._not_before_s:
                return
            self._not_before_s = now_s + self._every_s
            # Below the lock, so that nothing is posted once close() has returned.
            self._post(self._waiting)
            self._waiting = None

    def close(self) -> None:
        """The outcome comes next: nothing may follow it."""
        with self._lock:
            self._is_over = True

    def _report(self, result: JsonObject | None) -> Report:
        return Report(self._command_id, IN_PROGRESS, result)
