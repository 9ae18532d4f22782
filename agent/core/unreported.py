"""Results that the service does not take: what an error says about one, and how often it is tried.

The caller counts one try for each answer, and starts anew after a success.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

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


LIMITS: Final = {
    ReportFault.NOWHERE: (1, 0.0),
    # A place that does not exist may be deployed in these minutes.
    ReportFault.NO_PLACE: (5, 600.0),
    # A service that fails is mostly mended; one that fails on this result for ever is not waited for.
    ReportFault.FAILING: (20, 3600.0),
}
"""So many answers of a kind, over so many seconds since the first of them, are enough."""


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
        if fault not in LIMITS:
            return False
        times, span_s = LIMITS[fault]
        return self.times >= times and now_s - self.since_s >= span_s
