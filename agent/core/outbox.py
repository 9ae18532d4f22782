"""What to send next, what to drop at a bound and why, and what a failed send means for the readings in it.

Handled here: live readings before the backlog, the backlog by priority, oldest first in each; bounds in rows, bytes
and age, and what gives way at them; which errors are the readings' own fault.

Never handled here: storing, deleting, sending, counting (:mod:`agent.core.gaps`), measuring what the disk holds.

Therefore the caller must hand over rows in the order of their keys and lazily (only as many as are asked for are
looked at, so a backlog of a million rows is never loaded), and do the deletions together with the writes that made
them necessary, in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice, takewhile
from typing import Final

from agent.core.timekeeping import age_s
from agent.core.values import Moment, StoredReading
from agent.errors import Advice, AgentError, Conflict, NotFound, Refused

ROW_BYTES: Final = 64
"""What a reading costs in the store beside its JSON text."""

LIVE_WITHIN_S: Final = 60.0
"""A reading younger than this is live: somebody may be looking at it now."""

LIVE_SCAN_MAX: Final = 10_000
"""So many rows are looked at to find where the live ones begin; with more of them the oldest must wait a little."""

RELIEVED_AT: Final = 0.9
"""A store that is filled to less than this share of its bounds is no longer full."""

_ADDRESS_FAULTS: Final = frozenset({405})


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


def is_live(at: Moment, now: Moment, live_within_s: float = LIVE_WITHIN_S) -> bool:
    """Somebody may be waiting for this reading."""
    age = age_s(at, now)
    return age is not None and age <= live_within_s


def choose_next(
    queues: Iterable[Iterable[StoredItem]],
    newest_first: Iterable[StoredItem],
    now: Moment,
    limit: int,
    live_within_s: float = LIVE_WITHIN_S,
) -> tuple[int, ...]:
    """The keys to send next, in this order: live ones, oldest first, then backlog by priority, oldest first in each.

    Args:
        queues: the waiting rows by priority, what goes first in front, each from its old end; at most ``limit`` of each
            are looked at.
        newest_first: the rows of all queues that may be live, from the new end; looked at only where the oldest row is
            not live, and then no further than :data:`LIVE_SCAN_MAX`.
        now: this instant.
        limit: how many keys at most.
        live_within_s: how young a live reading is.
    """
    backlog = [held for queue in queues for held in islice(queue, limit)]
    oldest = min(backlog, key=lambda held: held.key, default=None)
    # Later rows are younger: where the oldest is live all are.
    if oldest is None or is_live(oldest.at, now, live_within_s):
        return tuple(sorted(held.key for held in backlog)[:limit])
    tail = takewhile(lambda held: is_live(held.at, now, live_within_s), islice(newest_first, LIVE_SCAN_MAX))
    live = [held.key for held in tail][::-1]
    known = set(live)
    return (*live, *(held.key for held in backlog if held.key not in known))[:limit]


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


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is beyond the bounds; 0 or less is nothing.

    Attributes:
        rows: so many readings too many.
        size_bytes: so many bytes too many.
    """

    rows: int = 0
    size_bytes: int = 0

    @property
    def exists(self) -> bool:
        """Whether readings must be dropped."""
        return self.rows > 0 or self.size_bytes > 0

    def less(self, gone: Iterable[StoredItem]) -> Shortage:
        """What is still too much when these are gone."""
        sizes = [held.size_bytes + ROW_BYTES for held in gone]
        return Shortage(self.rows - len(sizes), self.size_bytes - sum(sizes))


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
    for held in oldest_first:
        age = age_s(held.at, now)
        if age is not None and age <= max_age_s:
            return gone, max_age_s - age
        if len(gone) + len(ageless) < limit:
            ageless.append(held)
        if age is not None:
            gone += ageless
            ageless = []
            if len(gone) >= limit:
                return gone, 0.0
    return gone, max_age_s


def evict(
    queues: Iterable[Iterable[StoredItem]], shortage: Shortage, limit: int
) -> list[tuple[StoredItem, DropReason]]:
    """The readings to drop, each with its reason: the lowest priority first, oldest first in it.

    Args:
        queues: the waiting readings by priority, the lowest in front, each from its old end; read as far as needed.
        shortage: what is too much.
        limit: how many at most.
    """
    dropped: list[tuple[StoredItem, DropReason]] = []
    for held in islice(chain.from_iterable(queues), limit):
        if not shortage.exists:
            break
        dropped.append((held, DropReason.ROWS if shortage.rows > 0 else DropReason.BYTES))
        shortage = shortage.less((held,))
    return dropped


def kept_together(in_flight: frozenset[int], waiting: int) -> frozenset[int]:
    """Which keys do not give way, since the service may have them and knows them only as one batch.

    Not when that batch is most of what waits: then the store is so small that new readings would give way to it.
    """
    return in_flight if 2 * len(in_flight) <= waiting else frozenset()


def batch_key(readings: Sequence[StoredReading]) -> str:
    """The key of several readings that go together: the same ones sent again, also after a crash, count once."""
    names = "\n".join(stored.idempotency_key for stored in readings)
    return hashlib.sha256(names.encode()).hexdigest()


# --- what an error means ----------------------------------------------------------------------------------------------


class Disposition(StrEnum):
    """The next step for readings that could not be sent."""

    RETRY = "retry"
    SET_ASIDE = "set_aside"


def judge_readings(error: AgentError) -> Disposition:
    """What a failed send means for its readings.

    Only a refusal of their content sets them aside. 404 and 405 speak of the address or of a device that was removed,
    409 of a request with the same idempotency key that is still running: none of them is the readings' fault, and a
    typo in the address must not empty the outbox.
    """
    if isinstance(error, Refused) and error.status not in _ADDRESS_FAULTS:
        return Disposition.SET_ASIDE
    if isinstance(error, NotFound | Conflict | Refused):
        return Disposition.RETRY
    return Disposition.SET_ASIDE if error.advice is Advice.DROP else Disposition.RETRY


def judge_report(error: AgentError) -> Disposition:
    """What a failed report means for it: what the service will never take is not repeated."""
    return Disposition.SET_ASIDE if error.advice is Advice.DROP else Disposition.RETRY
