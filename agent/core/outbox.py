"""What to send next, what to drop at a bound and why, and what a failed send means for the readings in it.

Handled here: live readings before the backlog and both oldest first; bounds in rows, bytes and age; which errors are
the readings' own fault.

Never handled here: storing, deleting, sending, counting.

Therefore the caller must hand over rows in the order of their keys and lazily (only as many as are asked for are
looked at, so a backlog of a million rows is never loaded), and do the deletions together with the writes that made
them necessary, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, takewhile
from typing import Final

from agent.core.timekeeping import is_plausible
from agent.core.values import Moment
from agent.errors import Advice, AgentError, Conflict, NotFound, Refused

ROW_BYTES: Final = 64
"""What a reading costs in the store beside its JSON text."""

LIVE_WITHIN_S: Final = 60.0
"""A reading younger than this is live: somebody may be looking at it now."""

LIVE_SCAN_MAX: Final = 10_000
"""So many rows are looked at to find where the live ones begin; with more of them the oldest must wait a little."""

_ADDRESS_FAULTS: Final = frozenset({405})


# --- what to send next ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """A waiting reading, as far as the decisions need it.

    Attributes:
        key: ascending in the order of acceptance.
        size_bytes: its JSON text.
        at: when it was read.
    """

    key: int
    size_bytes: int
    at: Moment


def age_s(at: Moment, now: Moment) -> float | None:
    """How old something is; None when no clock can say.

    Within a boot the monotonic clock measures. Across boots only the wall clock can, and only if it was set both times.
    """
    if at.boot_id == now.boot_id:
        return max(0.0, now.monotonic_s - at.monotonic_s)
    if is_plausible(at.wall_s) and is_plausible(now.wall_s):
        return max(0.0, now.wall_s - at.wall_s)
    return None


def is_live(at: Moment, now: Moment, live_within_s: float = LIVE_WITHIN_S) -> bool:
    """Somebody may be waiting for this reading."""
    age = age_s(at, now)
    return age is not None and age <= live_within_s


def choose_next(
    oldest_first: Iterable[Held],
    newest_first: Iterable[Held],
    now: Moment,
    limit: int,
    live_within_s: float = LIVE_WITHIN_S,
) -> tuple[int, ...]:
    """The keys to send next, in this order: live ones, oldest first, then backlog, oldest first.

    Args:
        oldest_first: the waiting rows from the old end; at most ``limit`` of them are looked at.
        newest_first: the same rows from the new end; looked at only where the oldest row is not live, and then no
            further than :data:`LIVE_SCAN_MAX`.
        now: this instant.
        limit: how many keys at most.
        live_within_s: how young a live reading is.
    """
    head = list(islice(oldest_first, limit))
    # Later rows are younger: where the oldest is live all are, and the two orders are one.
    if not head or is_live(head[0].at, now, live_within_s):
        return tuple(held.key for held in head)
    tail = takewhile(lambda held: is_live(held.at, now, live_within_s), islice(newest_first, LIVE_SCAN_MAX))
    live = [held.key for held in tail][::-1]
    backlog = [held.key for held in head if not live or held.key < live[0]]
    return (*live, *backlog)[:limit]


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
        max_bytes: their JSON text plus :data:`ROW_BYTES` each.
        max_age_s: since they were read.
    """

    max_rows: int = 100_000
    max_bytes: int = 64 * 1024 * 1024
    max_age_s: float = 7 * 86_400.0


def evict(
    oldest_first: Iterable[Held], rows: int, size_bytes: int, bounds: Bounds, now: Moment
) -> list[tuple[Held, DropReason]]:
    """What to delete, oldest first, each with its reason, so that the rest is within the bounds.

    A reading whose age no clock can tell is not dropped for its age, unless one that was accepted after it is.

    Args:
        oldest_first: the waiting readings; read only as far as needed.
        rows: how many wait.
        size_bytes: their JSON text altogether.
        bounds: how much may wait.
        now: this instant.
    """
    dropped: list[tuple[Held, DropReason]] = []
    ageless: list[Held] = []
    total_bytes = size_bytes + rows * ROW_BYTES
    for held in oldest_first:
        age = age_s(held.at, now)
        if age is not None and age > bounds.max_age_s:
            gone = [(each, DropReason.AGE) for each in (*ageless, held)]
            ageless.clear()
        else:
            over = _over(rows, total_bytes, bounds)
            if over is None and age is not None:
                break
            if over is None:
                ageless.append(held)
                continue
            gone = [(held, over)]
        dropped.extend(gone)
        rows -= len(gone)
        total_bytes -= sum(each.size_bytes + ROW_BYTES for each, _ in gone)
    return dropped


def _over(rows: int, total_bytes: int, bounds: Bounds) -> DropReason | None:
    if rows > bounds.max_rows:
        return DropReason.ROWS
    return DropReason.BYTES if total_bytes > bounds.max_bytes else None


# --- what an error means ----------------------------------------------------------------------------------------------


class Disposition(StrEnum):
    """What becomes of what could not be handed over."""

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
