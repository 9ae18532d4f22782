"""The true time of events, though the device's own wall clock may be wrong. Pure: no clock is read or set here.

The true time of a boot is the service's time minus the monotonic clock, learned from ``Date`` headers or
from a wall clock that the machine knows to be right. The caller must pass the moment at which an answer *arrived*, and
only answers that are the service's own (a captive portal has a ``Date`` too); and it must keep each boot's
:class:`BootTime` as long as it keeps something of that boot, since a monotonic clock says nothing to another boot.

Source: RFC 9110, section 6.6.1 (``Date``, whole seconds). The header is cut to the second, many servers make it anew
only once a second, and the answer takes time to travel. So each observation is behind the true time, never ahead of
it, by a bounded amount; several say it more closely than one.
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
# A ``Date`` that is older than the answer's delay explains is not believed: it was cached, or made before a stall.
# When all answers of so long a time agree with each other, the other side's clock was set back.
SET_BACK_S: Final = 60.0
_STEP_S: Final = 2.0
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
        boot_time: what is known of it.
        behind: the first of the latest observations that were all too far behind; None when the last one was not.
    """

    trust_wall: bool = False
    boot_id: str = ""
    boot_time: BootTime | None = None
    behind: BootTime | None = None

    @property
    def known(self) -> bool:
        """Whether there was an observation yet."""
        return self.boot_time is not None

    def observe(self, server_time: float | None, moment: Moment, round_trip_s: float = 0.0) -> ServiceTime:
        """The estimate after an answer that arrived at ``moment``.

        Args:
            server_time: its ``Date``, seconds since the epoch; None or an impossible time changes nothing.
            moment: when the answer arrived.
            round_trip_s: how long before that the question was sent, seconds.
        """
        if server_time is None or not is_plausible(server_time):
            return self
        within_s = DATE_RESOLUTION_S + max(0.0, round_trip_s)
        seen = BootTime(server_time - moment.monotonic_s, within_s, moment.monotonic_s)
        known, behind = self.boot_time, self.behind
        if known is None or self.boot_id != moment.boot_id:
            return replace(self, boot_id=moment.boot_id, boot_time=seen, behind=None)
        drift_s = DRIFT * abs(seen.at_s - known.at_s)
        least_s, most_s = known.offset_s - drift_s, known.offset_s + known.within_s + drift_s
        if seen.offset_s > most_s:
            return replace(self, boot_time=seen, behind=None)
        late_s = within_s + _STEP_S
        if seen.offset_s >= least_s - late_s:
            offset_s = max(seen.offset_s, least_s)
            within_s = max(0.0, min(most_s, seen.offset_s + within_s) - offset_s)
            return replace(self, boot_time=BootTime(offset_s, within_s, seen.at_s), behind=None)
        if behind is None or abs(seen.offset_s - behind.offset_s) > late_s:
            return replace(self, behind=seen)
        return replace(self, boot_time=seen, behind=None) if seen.at_s - behind.at_s >= SET_BACK_S else self

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
