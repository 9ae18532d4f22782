"""What to send next, what to drop at a bound and how the service hears of that, and which errors are a reading's fault.

The caller must hand over rows in the order of their keys and lazily (only as many as are asked for are read, so a
backlog of a million rows is never loaded), and do the deletions together with the writes that made them necessary, in
one transaction. In that transaction it keeps the open gap of each reason, and it turns a gap into a waiting record in
the transaction that forgets it: then a gap is recorded once, whatever crashes between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice, takewhile
from typing import Final

from agent.core.timekeeping import age_s
from agent.core.values import Moment, Priority, Reading, StoredReading
from agent.errors import Advice, AgentError, Conflict, NotFound, Refused

ROW_BYTES: Final = 64
"""What a reading costs in the store beside its JSON text."""

LIVE_WITHIN_S: Final = 60.0
"""A reading younger than this is live: somebody may be looking at it now."""

LIVE_SCAN_MAX: Final = 10_000
"""So many rows are read to find where the live ones begin; with more of them the oldest must wait a little."""

RELIEVED_AT: Final = 0.9
"""A store that is filled to less than this share of its bounds is no longer full."""

_METHOD_NOT_ALLOWED: Final = 405


# --- what to send next ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A waiting reading, as far as the decisions need it.

    Attributes:
        key: ascending in the order of acceptance.
        size_bytes: its JSON text.
        at: when it was read.
    """

    key: int
    size_bytes: int
    at: Moment


def is_live(at: Moment, now: Moment) -> bool:
    """Somebody may be waiting for this reading."""
    age = age_s(at, now)
    return age is not None and age <= LIVE_WITHIN_S


def choose_next(
    queues: Iterable[Iterable[StoredItem]],
    newest_first: Iterable[StoredItem],
    now: Moment,
    limit: int,
) -> tuple[int, ...]:
    """The keys to send next, in this order: live ones, oldest first, then backlog by priority, oldest first in each.

    Args:
        queues: the waiting rows by priority, what goes first in front, each from its old end; at most ``limit`` of each
            are read.
        newest_first: the rows of all queues that may be live, from the new end; read only where the oldest row is
            not live, and then no further than :data:`LIVE_SCAN_MAX`.
        now: this instant.
        limit: how many keys at most.
    """
    backlog = [item for queue in queues for item in islice(queue, limit)]
    oldest = min(backlog, key=lambda item: item.key, default=None)
    # Later rows are younger: where the oldest is live all are.
    if oldest is None or is_live(oldest.at, now):
        return tuple(sorted(item.key for item in backlog)[:limit])
    tail = takewhile(lambda item: is_live(item.at, now), islice(newest_first, LIVE_SCAN_MAX))
    live = [item.key for item in tail][::-1]
    known = set(live)
    return (*live, *(item.key for item in backlog if item.key not in known))[:limit]


# --- what to drop -----------------------------------------------------------------------------------------------------


class DropReason(StrEnum):
    """Why a reading was dropped."""

    AGE = "age"
    ROWS = "rows"
    BYTES = "bytes"
    UNSAVED = "unsaved"
    """The store could not be written for so long that the buffer in memory was full."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait.

    Attributes:
        max_rows: readings.
        max_bytes: what they take, as their store measures it: in memory the JSON text plus :data:`ROW_BYTES` each, on
            a disk what is really on it.
        max_age_s: since they were read.
    """

    max_rows: int = 300_000
    max_bytes: int = 64 * 1024 * 1024
    max_age_s: float = 7 * 86_400.0


def too_old(
    oldest_first: Iterable[StoredItem], max_age_s: float, now: Moment, limit: int
) -> tuple[list[StoredItem], float]:
    """The readings that are too old, oldest first, and in how many seconds the next one may be.

    A reading whose age no clock gives is not too old, unless one that was accepted after it is.

    Args:
        oldest_first: the waiting readings of all priorities; read up to the first that is young enough.
        max_age_s: the bound.
        now: this instant.
        limit: how many at most; with more of them the next may come at once.
    """
    gone: list[StoredItem] = []
    ageless: list[StoredItem] = []
    for item in oldest_first:
        age = age_s(item.at, now)
        if age is not None and age <= max_age_s:
            return gone, max_age_s - age
        if len(gone) + len(ageless) < limit:
            ageless.append(item)
        if age is not None:
            gone += ageless
            ageless = []
            if len(gone) >= limit:
                return gone, 0.0
    return gone, max_age_s


def evict(
    queues: Iterable[Iterable[StoredItem]], rows: int, size_bytes: int, limit: int
) -> list[tuple[StoredItem, DropReason]]:
    """The readings to drop, each with its reason: the lowest priority first, oldest first in it.

    Args:
        queues: the waiting readings by priority, the lowest in front, each from its old end; read as far as needed.
        rows, size_bytes: so many readings and bytes are too many; 0 or less is nothing.
        limit: how many at most.
    """
    dropped: list[tuple[StoredItem, DropReason]] = []
    for item in islice(chain.from_iterable(queues), limit):
        if rows <= 0 and size_bytes <= 0:
            break
        dropped.append((item, DropReason.ROWS if rows > 0 else DropReason.BYTES))
        rows -= 1
        size_bytes -= item.size_bytes + ROW_BYTES
    return dropped


def batch_key(readings: Sequence[StoredReading]) -> str:
    """The key of several readings that go together: the same ones sent again, also after a crash, count once."""
    names = "\n".join(stored.idempotency_key for stored in readings)
    return hashlib.sha256(names.encode()).hexdigest()


# --- what the service is sent for readings that were dropped ----------------------------------------------------------

GAP_LONGEST_S: Final = 3600.0
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
        return pressure_is_over or (age_s(self.since, self.until) or 0.0) >= GAP_LONGEST_S

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
    for item, reason in dropped:
        gap = Gap(reason, 1, item.at, item.at)
        found[reason] = found[reason].joined(gap) if reason in found else gap
    return list(found.values())


def _is_before(one: Moment, other: Moment) -> bool:
    if one.boot_id == other.boot_id:
        return one.monotonic_s < other.monotonic_s
    return one.wall_s < other.wall_s


# --- what an error means ----------------------------------------------------------------------------------------------


def is_refused_for_good(error: AgentError) -> bool:
    """Whether a failed send was refused for the content of its readings, so that they are not sent again.

    404 and 405 speak of the address or of a device that was removed, 409 of a request with the same idempotency key
    that is still running: none of them is the readings' fault, and a typo in the address must not empty the outbox.
    """
    if isinstance(error, NotFound | Conflict) or (isinstance(error, Refused) and error.status == _METHOD_NOT_ALLOWED):
        return False
    return error.advice is Advice.DROP


# --- how much is sent at once -----------------------------------------------------------------------------------------
# So much as the link carries within the time that an answer may take: begins small, doubles while answers come soon, is
# quartered when none comes in time, and then grows slowly towards the size that was too much. Only whole items are
# sent, and one is always allowed, however large it is.

FIRST_BYTES: Final = 16 * 1024
MOST_BYTES: Final = 128 * 1024
LEAST_BYTES: Final = 64

_SOON_S: Final = 1.0
_GROW_SLOWLY: Final = 8
# So many answers in a row at the size just below before that which was too much is tried again.
_TRY_AGAIN_AFTER: Final = 30


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How many bytes go at once.

    Attributes:
        size_bytes: of one batch.
        too_much_bytes: this much was not answered in time; None while nothing was.
        answered: batches in a row since then.
    """

    size_bytes: int = FIRST_BYTES
    too_much_bytes: int | None = None
    answered: int = 0

    def fit(self, sizes_bytes: Iterable[int]) -> int:
        """How many of the first of these go at once; at least one."""
        count, left_bytes = 0, self.size_bytes
        for size_bytes in sizes_bytes:
            left_bytes -= size_bytes
            if left_bytes < 0 and count:
                break
            count += 1
        return count

    def after_no_answer(self, sent_bytes: int) -> BatchSize:
        """No answer came in time to so much."""
        size_bytes = max(LEAST_BYTES, min(sent_bytes, self.size_bytes) // 4)
        return BatchSize(size_bytes, max(LEAST_BYTES, sent_bytes))

    def after_answer(self, took_s: float) -> BatchSize:
        """A batch that was as large as it may be was answered after so long."""
        if self.too_much_bytes is None:
            grown = 2 * self.size_bytes if took_s < _SOON_S else self.size_bytes
            return replace(self, size_bytes=min(MOST_BYTES, grown))
        if took_s >= _SOON_S:
            return self
        if self.answered >= _TRY_AGAIN_AFTER:
            return BatchSize(self.size_bytes)
        is_far = 2 * self.size_bytes <= self.too_much_bytes // 2
        grown = 2 * self.size_bytes if is_far else self.size_bytes + max(1, self.size_bytes // _GROW_SLOWLY)
        bounded = min(grown, max(self.size_bytes, self.too_much_bytes - 1))
        return replace(self, size_bytes=bounded, answered=self.answered + 1)
