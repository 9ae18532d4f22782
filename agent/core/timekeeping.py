"""Time: when events truly were, though the device's wall clock may be wrong, and when periodic work falls due.

Pure: no clock is read or set here.

The true time of a boot is the service's time minus the monotonic clock, learned from ``Date`` headers or
from a wall clock that the machine knows to be right. The caller must pass the moment at which an answer *arrived*, and
only answers that are the service's own (a captive portal has a ``Date`` too); and it must keep each boot's
:class:`BootTime` as long as it keeps something of that boot, since a monotonic clock says nothing to another boot.

Source: RFC 9110, section 6.6.1 (``Date``, whole seconds). The header is cut to the second, many servers make it anew
only once a second, and the answer takes time to travel. So each observation is behind the true time, never ahead of
it, by a bounded amount; several say it more closely than one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from agent.core.values import Command, Moment

EARLIEST_S: Final = 1_704_067_200.0
"""2024-01-01, before this program existed: a clock that shows less was never set."""

TIME_UNKNOWN: Final = "agent_time_unknown"
"""The number 1 under this name in ``sensor_data``: nobody knows when this was read, so it has no ``recorded_at``."""

DEVICE_WALL_S: Final = "agent_wall_s"
"""Beside :data:`TIME_UNKNOWN`: what the device's wall clock showed, epoch seconds, whatever that is worth."""

DATE_RESOLUTION_S: Final = 2.0
"""So far may a ``Date`` lag behind: it is cut to the second, and often a second old when it is sent."""

# Two clocks of ordinary crystals drift apart by at most this much.
DRIFT: Final = 200e-6
# A ``Date`` that is older than the answer's delay explains is not believed: it was cached, or made before a stall.
# When all answers of so long a time agree with each other, the other side's clock was set back.
SET_BACK_S: Final = 60.0
_STEP_S: Final = 2.0
# Bounds that are at most so old, and would move by no more than this, stay as they are.
_KEPT_S: Final = 30.0
_NEWS_S: Final = 0.0005
# A wall clock this near is taken for right: several servers behind one address never agree exactly.
_AGREEMENT_S: Final = 0.25


def is_plausible(wall_s: float) -> bool:
    """False for a wall clock that was certainly never set."""
    return wall_s >= EARLIEST_S


def age_s(at: Moment, now: Moment) -> float | None:
    """How old something is; None when no clock can say.

    Within a boot the monotonic clock measures. Across boots only the wall clock can, and only if it was set both times.
    """
    if at.boot_id == now.boot_id:
        return max(0.0, now.monotonic_s - at.monotonic_s)
    if is_plausible(at.wall_s) and is_plausible(now.wall_s):
        return max(0.0, now.wall_s - at.wall_s)
    return None


@dataclass(frozen=True, slots=True)
class BootTime:
    """The true time of one boot.

    Attributes:
        offset_s: true time minus the monotonic clock at least, epoch seconds at the boot's monotonic zero.
        within_s: it is at most so much more.
        at_s: the monotonic time that it was learned at.
    """

    offset_s: float
    within_s: float
    at_s: float

    def date(self, moment: Moment) -> float:
        """When a moment of this boot was, epoch seconds.

        A wall clock that agrees is the better of the two: it is not cut to whole seconds, and the same moment comes
        out the same at every resend. A wrong one gives way.
        """
        ahead_s = moment.wall_s - moment.monotonic_s - self.offset_s
        if -_AGREEMENT_S <= ahead_s <= self.within_s + _AGREEMENT_S:
            return moment.wall_s
        return self.offset_s + self.within_s / 2 + moment.monotonic_s


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """What is known of the time of the boot that runs.

    Attributes:
        trust_wall: the device's wall clock is known to be right (a server's, say): without an observation it counts.
        boot_id: the boot that ``boot_time`` belongs to; empty before the first observation.
        boot_time: what is known of it; None before the first observation.
        behind: the first of the latest observations that were all too far behind; None when the last one was not.
    """

    trust_wall: bool = False
    boot_id: str = ""
    boot_time: BootTime | None = None
    behind: BootTime | None = None

    def observe(self, server_time: float | None, moment: Moment, round_trip_s: float = 0.0) -> ServiceTime:
        """The estimate after an answer that arrived at ``moment``.

        Args:
            server_time: its ``Date``, seconds since the epoch; None or an impossible time changes nothing.
            moment: when the answer arrived.
            round_trip_s: how long before that the question was sent, seconds.
        """
        if server_time is None or not is_plausible(server_time):
            return self
        at_s, behind = moment.monotonic_s, self.behind
        offset_s, within_s = server_time - at_s, DATE_RESOLUTION_S + max(0.0, round_trip_s)
        known = self.boot_time if self.boot_id == moment.boot_id else None
        if known is not None and behind is None and at_s - known.at_s < _KEPT_S:
            least_s = known.offset_s + known.within_s - within_s
            if least_s - _NEWS_S <= offset_s <= known.offset_s + _NEWS_S:
                return self  # as most answers: it says nothing new
        seen = BootTime(offset_s, within_s, at_s)
        if known is None:
            return ServiceTime(self.trust_wall, moment.boot_id, seen)
        drift_s = DRIFT * abs(at_s - known.at_s)
        least_s, most_s = known.offset_s - drift_s, known.offset_s + known.within_s + drift_s
        if offset_s > most_s:
            return ServiceTime(self.trust_wall, self.boot_id, seen)
        late_s = within_s + _STEP_S
        if offset_s >= least_s - late_s:
            bound_s = max(offset_s, least_s)
            within_s = max(0.0, min(most_s, offset_s + within_s) - bound_s)
            return ServiceTime(self.trust_wall, self.boot_id, BootTime(bound_s, within_s, at_s))
        if behind is None or abs(offset_s - behind.offset_s) > late_s:
            return replace(self, behind=seen)
        return ServiceTime(self.trust_wall, self.boot_id, seen) if at_s - behind.at_s >= SET_BACK_S else self

    def at(self, moment: Moment) -> float | None:
        """The service's clock at ``moment``, seconds since the epoch, never ahead of it; None when nobody can say.

        A moment of another boot is never estimated: its monotonic clock has nothing to do with this one's.
        """
        if self.boot_time is not None and self.boot_id == moment.boot_id:
            return self.boot_time.offset_s + moment.monotonic_s
        return moment.wall_s if self.trust_wall and is_plausible(moment.wall_s) else None

    def recorded_at(self, moment: Moment) -> float | None:
        """When something of this boot happened, epoch seconds; None when nobody can say."""
        if self.boot_time is not None and self.boot_id == moment.boot_id:
            return self.boot_time.date(moment)
        return moment.wall_s if self.trust_wall and is_plausible(moment.wall_s) else None


def with_true_wall(moment: Moment, times: Mapping[str, BootTime]) -> Moment:
    """The moment with the true time instead of the wall clock's; 0 (1970) where the time of its boot is not known.

    So decisions that compare moments of two boots go by what is known, and never by a clock that may be wrong.
    """
    known = times.get(moment.boot_id)
    return replace(moment, wall_s=0.0 if known is None else known.date(moment))


def marked_time_unknown(values: Mapping[str, float], moment: Moment) -> dict[str, float]:
    """The ``sensor_data`` of a reading that nobody knows the time of: it says so, and what the device believed."""
    return {**values, TIME_UNKNOWN: 1.0, DEVICE_WALL_S: round(moment.wall_s, 3)}


def service_time_at_least(command: Command, received: Moment, now: Moment) -> float | None:
    """What the service's clock shows at least, by the command alone; None when not even that can be said.

    It was made before it was received, and since then the monotonic clock measures.
    """
    if command.created_at is None or received.boot_id != now.boot_id:
        return None
    return command.created_at + max(0.0, now.monotonic_s - received.monotonic_s)


# --- when periodic work falls due, and which of the readings taken then are sent --------------------------------------
# The caller takes all times from one monotonic clock, and asks for the next instant *after* the work is done: work that
# took three periods is followed by one tick, not by three in a bunch. It keeps what was Sent of each sensor and
# replaces it only once the outbox took the values: otherwise a failed write would count as reported.


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
"""The last values of one sensor that were sent: reading name -> (value, seconds on the monotonic clock)."""


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
        gap_s = MIN_GAP_S - took_s if took_s < MIN_GAP_S else 0.0
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
