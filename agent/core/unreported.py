"""Results that the service does not take: how often each is tried, when it is put aside, and what gives way then.

Handled here: what a failed report says about the result and about the place for results; how many tries over how long;
which results that were put aside give way to younger ones.

Never handled here: sending, waiting, storing, the moves of the journal (:mod:`agent.core.commands`).

Therefore the caller must count one try for each answer, and start anew after a success.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from agent.core.commands import CommandEvent, advance
from agent.core.values import JournalEntry
from agent.errors import (
    AgentError,
    Conflict,
    ErrorAnswer,
    InvalidMessage,
    NoPlaceForResults,
    NotFound,
    Refused,
    ServerFault,
    UnexpectedAnswer,
)

PUT_ASIDE_MAX: Final = 1000
"""So many results are kept aside at most."""

PUT_ASIDE_BYTES_MAX: Final = 1024 * 1024
"""So many bytes the results that are kept aside may have, as JSON text."""

REASON_MAX: Final = 200
"""Characters of the reason that are kept with a result."""

COMMAND_UNKNOWN: Final = "command_not_found"

_NO_PLACE_STATUSES: Final = frozenset({403, 404, 405, 410, 501})


class ReportFault(StrEnum):
    """What a failed report says."""

    OVER = "over"
    """The service no longer wants the end of this command."""
    CONTENT = "content"
    """The service does not take this result; it may take the status alone."""
    NOWHERE = "nowhere"
    """This service takes no results, and nothing was sent: no try is needed."""
    NO_PLACE = "no_place"
    """The answer says that there is no such place."""
    FAILING = "failing"
    """The service, or something on the way, fails on it."""
    NOT_NOW = "not_now"
    """Nothing is known about this result: no answer, wrong keys, the quota, an earlier attempt that still runs."""


def fault_of(error: AgentError) -> ReportFault:
    """What this error says about the result that was reported."""
    if isinstance(error, Conflict) or (isinstance(error, NotFound) and error.error == COMMAND_UNKNOWN):
        return ReportFault.OVER
    if isinstance(error, NoPlaceForResults):
        return ReportFault.NOWHERE
    if isinstance(error, ErrorAnswer | UnexpectedAnswer) and error.status in _NO_PLACE_STATUSES:
        return ReportFault.NO_PLACE
    if isinstance(error, Refused | InvalidMessage):
        return ReportFault.CONTENT
    if isinstance(error, ServerFault | UnexpectedAnswer):
        return ReportFault.FAILING
    return ReportFault.NOT_NOW


@dataclass(frozen=True, slots=True)
class TriesLimit:
    """When enough was tried: so many times, and over so long.

    Attributes:
        times: answers of this kind.
        span_s: since the first of them, seconds.
    """

    times: int
    span_s: float


LIMITS: Final = {
    ReportFault.NOWHERE: TriesLimit(1, 0.0),
    # A place that does not exist may be deployed in these minutes.
    ReportFault.NO_PLACE: TriesLimit(5, 600.0),
    # A service that fails is mostly mended; one that fails on this result for ever is not waited for.
    ReportFault.FAILING: TriesLimit(20, 3600.0),
}


@dataclass(frozen=True, slots=True)
class FailureStreak:
    """Failed tries in a row, of one result or of any.

    Attributes:
        times: how many.
        since_s: when the first was, seconds on the monotonic clock.
    """

    times: int = 0
    since_s: float = 0.0

    def failed(self, now_s: float) -> FailureStreak:
        """The streak with one more failure."""
        return FailureStreak(1, now_s) if not self.times else replace(self, times=self.times + 1)

    def are_enough(self, fault: ReportFault, now_s: float) -> bool:
        """The last one failed with ``fault``, and there is no point in more of them for now."""
        limit = LIMITS.get(fault)
        return limit is not None and self.times >= limit.times and now_s - self.since_s >= limit.span_s


def giving_way(kept: Iterable[tuple[str, int]], rows: int, size_bytes: int) -> list[str]:
    """The ids of the results that give way so that both bounds hold.

    Args:
        kept: (id, bytes) of what is put aside, oldest first; read as far as needed.
        rows: how many there are.
        size_bytes: what they have together.
    """
    gone: list[str] = []
    for command_id, each_bytes in kept:
        if rows <= PUT_ASIDE_MAX and size_bytes <= PUT_ASIDE_BYTES_MAX:
            break
        gone.append(command_id)
        rows -= 1
        size_bytes -= each_bytes
    return gone


def put_aside_entry(entry: JournalEntry, reason: str) -> JournalEntry:
    """The entry once the service has turned out to have no place for its result, which stays with it."""
    return replace(entry, state=advance(entry.state, CommandEvent.PUT_ASIDE), put_aside=reason)


def give_up_entry(entry: JournalEntry) -> JournalEntry:
    """The entry once its result gave way to younger ones: it stays for de-duplication, and with the reason."""
    state = advance(entry.state, CommandEvent.GIVE_UP)
    outcome = None if entry.outcome is None else replace(entry.outcome, result=None)
    return replace(entry, state=state, outcome=outcome)
