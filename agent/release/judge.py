"""The judgement of a release on trial: by what is seen from outside, and nothing of the release itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.release.state import Trial

_EXAMINE_EVERY_S: Final = 10.0
_SAYS_WITHIN_S: Final = 60.0
"""A service that makes progress says so at least every 45 s: half of the unit's WatchdogSec=."""


class Verdict(StrEnum):
    """The next step of a trial: go on watching, have it examined by the doctor, or go back."""

    WAIT = "wait"
    EXAMINE = "examine"
    GO_BACK = "go_back"


@dataclass(frozen=True, slots=True)
class Seen:
    """The service at one moment.

    Attributes:
        is_ready: the service manager has its READY.
        process_id: of its main process; 0 when there is none.
        version: that this process says it is; empty when it said nothing yet.
        is_connected: this process has had an exchange with the server.
        detail: how its connection is, for the reason.
        alive_s: when it last said that it makes progress, seconds of the clock in which the trial began; 0: never.
    """

    is_ready: bool
    process_id: int
    version: str
    is_connected: bool
    detail: str
    alive_s: float


class Judge:
    """Watches one trial in one boot.

    Args:
        trial: with its limits.

    Attributes:
        missing: what the release has not shown yet, one sentence.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._process_id = 0
        self._well_since_s: float | None = None
        self._has_exchanged = False
        self._examined_s = float("-inf")
        self.missing = "it was not started"

    def look(self, seen: Seen, now_s: float) -> Verdict:
        """Judge what is seen now.

        Args:
            seen: the service.
            now_s: of the clock in which the trial began, seconds.
        """
        if seen.process_id != self._process_id:
            self._process_id, self._has_exchanged, self._well_since_s = seen.process_id, False, None
        fault = self._fault(seen)
        if fault:
            self.missing, self._well_since_s = fault, None
        elif self._well_since_s is None:
            self._well_since_s = now_s
            self.missing = f"it was not well for {self._trial.probation_s:g} s in a row"
        proven_s = float("inf") if self._well_since_s is None else self._well_since_s + self._trial.probation_s
        is_due = min(now_s, seen.alive_s) >= proven_s
        # The probation is over, and a process that hangs looks as well as before: its own word has to follow.
        is_awaited = now_s >= proven_s > self._examined_s
        if is_awaited and not is_due:
            self.missing = "it is ready, and has not said since that it makes progress: it hangs"
        if now_s - self._trial.began_s >= self._trial.deadline_s + (_SAYS_WITHIN_S if is_awaited else 0.0):
            return Verdict.GO_BACK
        if is_due and now_s - self._examined_s >= _EXAMINE_EVERY_S:
            self._examined_s = now_s
            return Verdict.EXAMINE
        return Verdict.WAIT

    def is_same(self, seen: Seen) -> bool:
        """Whether the process that was looked at last still runs, and is ready."""
        return seen.is_ready and seen.process_id == self._process_id

    def _fault(self, seen: Seen) -> str:
        if not seen.process_id or not seen.is_ready:
            return "the service does not say that it is ready"
        if seen.version != self._trial.version:
            return f"the service runs version {seen.version or 'unknown'}"
        self._has_exchanged = self._has_exchanged or seen.is_connected
        return "" if self._has_exchanged else f"it is ready, and has had no exchange with the server ({seen.detail})"
