"""When periodic work falls due, and which of the readings taken then are worth sending.

Handled here: which instants a period has for this device and name (a hashed phase; missed ticks are skipped), the next
one. Of readings: every one, only changes, or only moves beyond a deadband; and a bound on silence, for each named
reading on its own.

Never handled here: waiting, reading a clock, storing.

Therefore the caller must

- take all times from one monotonic clock, and ask for the next instant *after* the work is done: work that took three
  periods is followed by one tick, not by three in a bunch;
- keep what was :data:`Sent` of each sensor and replace it only once the outbox took the values: otherwise a failed
  write would count as reported.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


def phase_s(device_id: str, name: str, period_s: float) -> float:
    """How far into each period this device does this work, seconds in [0, ``period_s``).

    It depends on the arguments alone, so a fleet that was powered on in the same second spreads over the period, and
    a device keeps its place over restarts.
    """
    digest = hashlib.blake2b(f"{device_id}\x1f{name}".encode(), digest_size=8).digest()
    # 53 bits, since a float holds no more: the fraction stays below 1.
    return (int.from_bytes(digest) >> 11) / (1 << 53) * period_s


@dataclass(frozen=True, slots=True)
class Schedule:
    """Instants ``phase_s + n * period_s`` on the monotonic clock.

    Attributes:
        period_s: above 0.
        phase_s: in [0, ``period_s``).
    """

    period_s: float
    phase_s: float

    @classmethod
    def of(cls, device_id: str, name: str, period_s: float) -> Schedule:
        """The schedule of a device's work called ``name``."""
        return cls(period_s, phase_s(device_id, name, period_s))

    def next_after(self, now_s: float) -> float:
        """The first instant after ``now_s``; never ``now_s`` itself."""
        due_s = self.phase_s + (math.floor((now_s - self.phase_s) / self.period_s) + 1) * self.period_s
        # Rounding may land on now_s, which would make the caller run twice at once.
        return due_s if due_s > now_s else due_s + self.period_s


Sent = Mapping[str, tuple[float, float]]
"""What was last sent of one sensor: reading name -> (value, when on the monotonic clock)."""


class ReportStrategy(StrEnum):
    """Which readings of a sensor are sent: every one, changed ones, or those that left the deadband."""

    PERIOD = "period"
    CHANGE = "change"
    DEADBAND = "deadband"


@dataclass(frozen=True, slots=True)
class ReportRule:
    """Which readings of one sensor are sent: the strategy of its configuration.

    Attributes:
        when: which strategy.
        deadband: how far a value must move from the last one sent, in the reading's unit, for ``DEADBAND``: one number
            for all readings, or one for each by name (a reading without one is sent on change).
        at_least_every_s: send after this long even if nothing moved; None means never.
    """

    when: ReportStrategy = ReportStrategy.PERIOD
    deadband: float | Mapping[str, float] = 0.0
    at_least_every_s: float | None = None

    def select(self, values: Mapping[str, float], sent: Sent, now_s: float) -> tuple[dict[str, float], Sent]:
        """The values to send, and what counts as sent once they are stored.

        Args:
            values: reading name -> number.
            sent: what was sent before; empty at the start, and then everything is sent.
            now_s: on the monotonic clock.
        """
        chosen = {name: value for name, value in values.items() if self._is_due(name, value, sent.get(name), now_s)}
        return chosen, {**sent, **{name: (value, now_s) for name, value in chosen.items()}}

    def _is_due(self, name: str, value: float, last: tuple[float, float] | None, now_s: float) -> bool:
        if last is None or self.when is ReportStrategy.PERIOD:
            return True
        before, at_s = last
        if self.at_least_every_s is not None and now_s - at_s >= self.at_least_every_s:
            return True
        if self.when is ReportStrategy.CHANGE:
            return value != before
        band = self.deadband if isinstance(self.deadband, int | float) else self.deadband.get(name, 0.0)
        return value != before and abs(value - before) >= band


# --- how soon to ask for commands again -------------------------------------------------------------------------------
# Fast while commands come, ever more slowly when none do, at once where the service holds polls open, and never so fast
# that a service which answers at once what it should have held makes the agent spin. The caller measures how long the
# poll took, draws the random number, and spreads its very first poll by phase_s, since a fleet that lost its power
# comes back in the same second.

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
