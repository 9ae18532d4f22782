"""What time it is at the service, though the device's own wall clock may be wrong.

Handled here: an estimate of the service's clock out of its ``Date`` headers and the device's monotonic clock; when a
reading was taken; whether a wall clock can be right at all.

Never handled here: setting the device's clock, reading any clock.

Therefore the caller must pass the moment at which the answer *arrived*, only for answers that are the service's own (a
captive portal has a ``Date`` too), and keep the value: it holds for one boot and is never stored.

Source: RFC 9110, section 6.6.1 (``Date``, whole seconds). The header is cut to the second and the answer takes time to
travel, so each observation is a lower bound of the true offset: the largest recent one is the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from agent.core.values import Moment

EARLIEST_S: Final = 1_704_067_200.0
"""2024-01-01, before this program existed: a clock that shows less was never set."""

# Two clocks of ordinary crystals drift apart by at most this much.
_DRIFT: Final = 200e-6
# Observations that lie further apart than the header's resolution and a slow answer explain mean that the service's
# clock was set.
_STEP_S: Final = 15.0
# A device clock this near to the service's is right: the header is cut to the second, and answers may be slow.
_AGREEMENT_S: Final = 5.0


def is_plausible(wall_s: float) -> bool:
    """False for a wall clock that was certainly never set."""
    return wall_s >= EARLIEST_S


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """An estimate of the service's clock.

    Attributes:
        trust_wall: the device's wall clock is known to be right (NTP says so): without an observation it counts.
        boot_id: the boot that the offset belongs to; empty before the first observation.
        offset_s: service time minus monotonic time.
        observed_s: monotonic time of the observation that ``offset_s`` came from.
    """

    trust_wall: bool = False
    boot_id: str = ""
    offset_s: float = 0.0
    observed_s: float = 0.0

    @property
    def known(self) -> bool:
        """There was an observation."""
        return bool(self.boot_id)

    def observe(self, server_time: float | None, moment: Moment) -> ServiceTime:
        """The estimate after an answer that arrived at ``moment``.

        Args:
            server_time: its ``Date``, seconds since the epoch; None or an impossible time changes nothing.
            moment: when the answer arrived.
        """
        if server_time is None or not is_plausible(server_time):
            return self
        offset_s = server_time - moment.monotonic_s
        fresh = replace(self, boot_id=moment.boot_id, offset_s=offset_s, observed_s=moment.monotonic_s)
        if self.boot_id != moment.boot_id or abs(offset_s - self.offset_s) > _STEP_S:
            return fresh
        bound_s = self.offset_s - _DRIFT * max(0.0, moment.monotonic_s - self.observed_s)
        return fresh if offset_s >= bound_s else self

    def at(self, moment: Moment) -> float | None:
        """The service's clock at ``moment``, seconds since the epoch; None when nobody can say.

        A moment of another boot is never estimated: its monotonic clock has nothing to do with this one's.
        """
        if self.known and self.boot_id == moment.boot_id:
            return self.offset_s + moment.monotonic_s
        return moment.wall_s if self.trust_wall and is_plausible(moment.wall_s) else None

    def recorded_at(self, moment: Moment) -> float | None:
        """When something happened, for the wire; also for a moment of an earlier boot.

        A wall clock that agrees with the service's is the better of the two: it is not cut to whole seconds, and the
        same moment comes out the same at every resend, also after a restart. A wrong one gives way to the estimate.
        Without an estimate it is taken, unless it was certainly never set; then None, and the service fills in the
        time of arrival.
        """
        estimate_s = self.at(moment)
        if estimate_s is not None and abs(moment.wall_s - estimate_s) > _AGREEMENT_S:
            return estimate_s
        return moment.wall_s if is_plausible(moment.wall_s) else None
