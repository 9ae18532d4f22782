"""How soon to ask for commands again.

Handled here: asking fast while commands come, ever more slowly when none do, at once where the service holds polls
open, and never so fast that a service which answers at once what it should have held makes the agent spin.

Never handled here: failures (:mod:`agent.retry`), the request itself, waiting.

Therefore the caller must measure how long the poll took, draw the random number, and spread its very first poll by
:func:`agent.core.schedule.phase_s`, since a fleet that lost its power comes back in the same second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIN_GAP_S: Final = 0.2
"""At least this much lies between the starts of two polls, whatever the service answers."""

SETTLE_S: Final = 300.0
"""How long after the last command the interval stays at or below ``slow_s``."""

# A poll that was held shorter than this without news was not held: it counts as an ordinary one.
_HELD_AT_LEAST_S: Final = 1.0
_JITTER: Final = 0.1


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """The bounds, ascending, all above 0.

    Attributes:
        fast_s: right after a command.
        slow_s: the bound that the interval doubles to within :data:`SETTLE_S` of the last command.
        idle_s: the bound that it doubles to afterwards.
    """

    fast_s: float = 2.0
    slow_s: float = 10.0
    idle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PollPace:
    """Where the polling stands.

    Attributes:
        intervals: the bounds.
        interval_s: what the last quiet poll led to; 0 after news.
        quiet_s: how long nothing has come.
    """

    intervals: PollIntervals
    interval_s: float = 0.0
    quiet_s: float = 0.0

    def polled(
        self, *, active: bool, held: bool, took_s: float, fraction: float, busy: bool = False
    ) -> tuple[PollPace, float]:
        """The pace after a poll that was answered, and how long to wait until the next one, seconds.

        Args:
            active: it brought something new, to run or to refuse; a list of known commands is no news.
            held: the service was asked to hold this poll and says it can (:class:`~agent.core.values.CommandPoll`).
            took_s: from sending to the answer.
            fraction: a random number in [0, 1); spreads the wait by a tenth to either side.
            busy: a command is under way here, so the interval stays at ``fast_s``.
        """
        gap_s = max(0.0, MIN_GAP_S - took_s)
        if active or (busy and not held):
            return PollPace(self.intervals), gap_s if held else self._spread(self.intervals.fast_s, fraction)
        if held and took_s >= _HELD_AT_LEAST_S:
            return PollPace(self.intervals, 0.0, self.quiet_s + took_s), gap_s
        if held and self.interval_s == 0.0:
            # Our own result has just changed the list: once, that is no reason to let the next command wait.
            return PollPace(self.intervals, MIN_GAP_S, self.quiet_s + took_s), gap_s
        if busy:
            bound_s = self.intervals.fast_s
        else:
            bound_s = self.intervals.slow_s if self.quiet_s < SETTLE_S else self.intervals.idle_s
        # A service that can hold polls may have a reason for a few quick answers in a row, such as several results.
        least_s = MIN_GAP_S if held else self.intervals.fast_s
        interval_s = min(bound_s, max(least_s, 2 * self.interval_s))
        wait_s = max(gap_s, self._spread(interval_s, fraction))
        quiet_s = 0.0 if busy else self.quiet_s + took_s + wait_s
        return PollPace(self.intervals, interval_s, quiet_s), wait_s

    @staticmethod
    def _spread(interval_s: float, fraction: float) -> float:
        return interval_s * (1 - _JITTER + 2 * _JITTER * fraction)
