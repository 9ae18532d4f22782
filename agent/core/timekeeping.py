"""The true time of events, though the device's own wall clock may be wrong.

Handled here: the true time of a boot, learned from the service's ``Date`` headers or from a wall clock that the machine
knows to be right, and kept as two bounds; when a reading was taken; whether a wall clock can be right at all.

Never handled here: setting the device's clock, reading any clock, keeping what was learned over a restart.

Therefore the caller must pass the moment at which the answer *arrived* and how long it took, and only answers that are
the service's own (a captive portal has a ``Date`` too); and it must keep each boot's :class:`BootTime` as long as it
keeps something of that boot, since a monotonic clock says nothing to another boot.

Source: RFC 9110, section 6.6.1 (``Date``, whole seconds). The header is cut to the second, many servers make it anew
only once a second, and the answer takes time to travel. So each observation says between which two bounds the true
offset lies, and several of them say it more closely than one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
# Bounds that miss each other by more than this mean that the other side's clock was set.
STEP_S: Final = 2.0
# An answer that is older than the clock is known to be says nothing: its ``Date`` was made before a stall, or cached.
# Only when all answers of so long a time agree with each other was the other side's clock set back.
SET_BACK_S: Final = 60.0
# A wall clock this near to the bounds is taken for right: several servers behind one address never agree exactly.
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


def date_within(low_s: float, high_s: float, moment: Moment) -> float:
    """As :meth:`BootTime.date` with these bounds, for who has many and keeps them as plain numbers."""
    wall_s, monotonic_s = moment.wall_s, moment.monotonic_s
    if low_s - _AGREEMENT_S <= wall_s - monotonic_s <= high_s + _AGREEMENT_S:
        return wall_s
    return monotonic_s + (low_s + high_s) / 2


@dataclass(frozen=True, slots=True)
class BootTime:
    """True time minus the monotonic clock of one boot: it lies between the two bounds.

    Attributes:
        low_s, high_s: the bounds, epoch seconds at the boot's monotonic zero.
        at_s: the monotonic time that they were learned at; they part with the distance from it.
    """

    low_s: float
    high_s: float
    at_s: float

    @property
    def offset_s(self) -> float:
        """The best estimate of the offset, seconds."""
        return (self.low_s + self.high_s) / 2

    def date(self, moment: Moment) -> float:
        """When a moment of this boot was, epoch seconds.

        A wall clock that agrees is the better of the two: it is not cut to whole seconds, and the same moment comes
        out the same at every resend. A wrong one gives way.
        """
        return date_within(self.low_s, self.high_s, moment)

    def is_ahead_of(self, other: BootTime) -> bool:
        """Whether a later observation says less than is certain already: it is old, or the other clock was set back."""
        return self.low_s - DRIFT * abs(other.at_s - self.at_s) - other.high_s > STEP_S

    def narrowed(self, other: BootTime) -> BootTime:
        """What this and a later observation say together; the later one alone where they contradict each other."""
        drift_s = DRIFT * abs(other.at_s - self.at_s)
        low_s, high_s = max(self.low_s - drift_s, other.low_s), min(self.high_s + drift_s, other.high_s)
        if low_s - high_s > STEP_S:
            return other
        # A header that was older than it may be: how late it is at least is certain, how late at most is not.
        return BootTime(low_s, max(low_s, high_s), other.at_s)


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """What is known of the time of the boot that runs.

    Attributes:
        trust_wall: the device's wall clock is known to be right (a server's, say): without an observation it counts.
        boot_id: the boot that ``boot_time`` belongs to; empty before the first observation.
        boot_time: what is known of it.
        set_back: what the latest observations said together, all of them behind ``boot_time``; None when the last one
            was not.
        set_back_at_s: the monotonic time of the first of them.
    """

    trust_wall: bool = False
    boot_id: str = ""
    boot_time: BootTime | None = None
    set_back: BootTime | None = None
    set_back_at_s: float = 0.0

    @property
    def known(self) -> bool:
        """Whether there was an observation yet."""
        return self.boot_time is not None

    def observe(
        self,
        server_time: float | None,
        moment: Moment,
        round_trip_s: float = 0.0,
        resolution_s: float = DATE_RESOLUTION_S,
    ) -> ServiceTime:
        """The estimate after an answer that arrived at ``moment``.

        An answer whose ``Date`` is before what is known moves nothing back, unless all answers of :data:`SET_BACK_S`
        agree that it is so early.

        Args:
            server_time: its ``Date``, seconds since the epoch; None or an impossible time changes nothing.
            moment: when the answer arrived.
            round_trip_s: how long before that the question was sent, seconds.
            resolution_s: how far the time that was sent may lag behind its sender's clock.
        """
        if server_time is None or not is_plausible(server_time):
            return self
        low_s = server_time - moment.monotonic_s
        seen = BootTime(low_s, low_s + resolution_s + max(0.0, round_trip_s), moment.monotonic_s)
        if self.boot_time is None or self.boot_id != moment.boot_id:
            return replace(self, boot_id=moment.boot_id, boot_time=seen, set_back=None)
        if not self.boot_time.is_ahead_of(seen):
            return replace(self, boot_time=self.boot_time.narrowed(seen), set_back=None)
        doubt = self.set_back
        if doubt is None or doubt.is_ahead_of(seen) or seen.is_ahead_of(doubt):
            return replace(self, set_back=seen, set_back_at_s=moment.monotonic_s)
        doubt = doubt.narrowed(seen)
        if moment.monotonic_s - self.set_back_at_s < SET_BACK_S:
            return replace(self, set_back=doubt)
        return replace(self, boot_time=doubt, set_back=None)

    def at(self, moment: Moment) -> float | None:
        """The service's clock at ``moment``, seconds since the epoch, never ahead of it; None when nobody can say.

        A moment of another boot is never estimated: its monotonic clock has nothing to do with this one's.
        """
        if self.boot_time is not None and self.boot_id == moment.boot_id:
            return self.boot_time.low_s + moment.monotonic_s
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
