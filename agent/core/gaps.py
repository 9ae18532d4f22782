"""Gap records: what the service is sent for readings that were dropped.

Handled here: what belongs to one episode, when it is over, and how it is recorded in named numbers.

Never handled here: which readings are dropped (:mod:`agent.core.outbox`), storing, sending.

Therefore the caller must keep the open gap of each reason in the transaction that deletes the readings, and turn it
into a waiting record in the transaction that forgets it: then a gap is recorded once, whatever crashes between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agent.core.outbox import DropReason, StoredItem
from agent.core.timekeeping import age_s
from agent.core.values import Moment, Priority, Reading

LONGEST_S: Final = 3600.0
"""An episode that lasts longer is recorded in parts, so that the service has a record of it while it goes on."""

ROWS_NAME: Final = "agent_gap_rows"
SECONDS_NAME: Final = "agent_gap_seconds"
REASON_NAME: Final = "agent_gap_reason"

CODES: Final = {
    DropReason.AGE: 1,
    DropReason.ROWS: 2,
    DropReason.BYTES: 3,
    DropReason.UNSAVED: 4,
}
"""The values of a record are numbers only, so the reason is one."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Readings that were dropped for one reason, without a pause between.

    Attributes:
        rows: how many.
        since: when the first of them was read.
        until: when the last of them was read.
    """

    reason: DropReason
    rows: int
    since: Moment
    until: Moment

    def joined(self, later: Gap) -> Gap:
        """Both as one; what was dropped later need not have been read later."""
        since = later.since if _is_before(later.since, self.since) else self.since
        until = self.until if _is_before(later.until, self.until) else later.until
        return Gap(self.reason, self.rows + later.rows, since, until)

    def is_over(self, *, pressure_is_over: bool) -> bool:
        """Whether it is recorded now.

        Args:
            pressure_is_over: the bound is no longer near, or the store can be written again.
        """
        return pressure_is_over or (age_s(self.since, self.until) or 0.0) >= LONGEST_S

    def record(self) -> Reading:
        """The gap as a reading: taken when the last of the dropped ones was.

        How long it lasted is left out where no clock can say.
        """
        values: dict[str, float] = {ROWS_NAME: self.rows, REASON_NAME: CODES[self.reason]}
        seconds = age_s(self.since, self.until)
        if seconds is not None:
            values[SECONDS_NAME] = round(seconds, 3)
        return Reading(values, self.until, Priority.GAP)


def gaps_of(dropped: Iterable[tuple[StoredItem, DropReason]]) -> list[Gap]:
    """What was dropped at once, by reason."""
    found: dict[DropReason, Gap] = {}
    for held, reason in dropped:
        gap = Gap(reason, 1, held.at, held.at)
        found[reason] = found[reason].joined(gap) if reason in found else gap
    return list(found.values())


def _is_before(one: Moment, other: Moment) -> bool:
    if one.boot_id == other.boot_id:
        return one.monotonic_s < other.monotonic_s
    return one.wall_s < other.wall_s
