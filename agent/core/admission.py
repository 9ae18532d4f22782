"""How many commands may wait, in one lane and in all of them, and how long one has."""

from __future__ import annotations

from agent.core.outbox import age_s
from agent.core.values import Moment, Outcome, OutcomeStatus
from agent.frozen import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionLimit:
    """How many commands are in each lane, counted on with each that is admitted.

    Attributes:
        max_waiting, max_waiting_per_lane: more may not wait; a lane in which none waits always takes one.
        lanes: lane -> how many are in it by now, the running one included.
    """

    max_waiting: int
    max_waiting_per_lane: int
    lanes: dict[str, int]

    def refuse(self, lane: str) -> Outcome | None:
        """Why this lane takes no more; None when it has taken one more."""
        here = self.lanes.get(lane, 0)
        # Whatever else waits, an idle lane takes its command: what cancels the others must get through.
        if here and here >= self.max_waiting_per_lane:
            return _too_many(f"{here} commands are in lane {lane!r} already")
        everywhere = sum(self.lanes.values())
        if here and everywhere >= self.max_waiting:
            return _too_many(f"{everywhere} commands are under way on this device already")
        self.lanes[lane] = here + 1
        return None


def waited_s(received: Moment, now: Moment) -> float:
    """How long a command has waited, as far as clocks can tell; across boots at least since this one began."""
    age = age_s(received, now)
    since_boot_s = now.monotonic_s if received.boot_id != now.boot_id else 0.0
    return max(since_boot_s, age or 0.0)


def _too_many(what: str) -> Outcome:
    return Outcome(OutcomeStatus.REJECTED, error=f"too_many_waiting: {what}; send it again later")
