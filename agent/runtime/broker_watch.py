"""Reports the state of the connection to the broker to log and health."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.errors import Offline
from agent.runtime.failure_log import FailureLog
from agent.runtime.health import Health
from agent.runtime.retry_policy import describe

if TYPE_CHECKING:
    from agent.ports import Clock

_log = logging.getLogger(__name__)

PART: Final = "broker"
TAKEN_OVER: Final = "taken_over"


class BrokerWatch:
    """Reports the state of the connection; called in the connection's thread.

    Args:
        health: holds the part ``broker``.
        repeat_after_s: how soon the same failure may be logged again, seconds.
    """

    def __init__(self, clock: Clock, health: Health, repeat_after_s: float) -> None:
        now_s: Callable[[], float] = lambda: clock.now().monotonic_s  # noqa: E731 - with its type
        self._failure_log = FailureLog(_log, now_s, repeat_after_s)
        self._health = health
        self._states: set[str] = set()

    def up(self, where: str) -> None:
        """Report that the connection stands. A take-over by another client stays in the status: it will come again."""
        for state in self._states - {TAKEN_OVER}:
            self._failure_log.recovered(state, f"broker=ok: {where}")
        self._states &= {TAKEN_OVER}
        taken = "; another client with this device's id took it over before, see the log" if self._states else ""
        self._health.put(PART, "ok", where + taken)

    def down(self, error: Offline, wait_s: float) -> None:
        """Report that it does not stand, and how long it waits for the next attempt, seconds."""
        state, text, every_s = describe(error)
        self._failure_log.report(state, f"broker={state}: {text}; next try in {wait_s:.0f} s", every_s=every_s)
        self._states.add(state)
        self._health.put(PART, state, text)
