"""Whether the target is still there: judged by what the devices get, second by second. Pure."""

from __future__ import annotations

from typing import Final

from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Second

GONE_AFTER_S: Final = 15
_NO_ANSWER: Final = frozenset({OutcomeClass.TRANSPORT, OutcomeClass.TIMEOUT})


class TargetWatch:
    """Counts the seconds in a row in which requests were made and not one was answered by anybody."""

    def __init__(self) -> None:
        self._silent_since: int | None = None

    def see(self, second: Second, *, on_purpose: bool) -> str | None:
        """Why the run cannot go on; None as long as it can.

        Args:
            second: the latest.
            on_purpose: something is broken on purpose right now, so that silence proves nothing.
        """
        made = answered = 0
        for outcomes in second.operations.values():
            for outcome, tally in outcomes.items():
                made += tally.count
                answered += 0 if outcome in _NO_ANSWER else tally.count
        if answered or on_purpose:
            self._silent_since = None
        elif made and self._silent_since is None:
            self._silent_since = second.second
        # A second without any request proves nothing: perhaps nobody is left to make one.
        if made and self._silent_since is not None and second.second - self._silent_since >= GONE_AFTER_S:
            return f"the target went away: nothing was answered from second {self._silent_since} on"
        return None
