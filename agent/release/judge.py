"""The judgement of a release on trial, by what the service manager and the status file of the service say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent.release.state import Trial

_SAYS_WITHIN_S: Final = 60.0
"""A service that makes progress says so at least every 45 s: half of the unit's WatchdogSec=."""


class Verdict(StrEnum):
    """The next step of a trial: go on watching, keep the release, or go back."""

    WAIT = "wait"
    KEEP = "keep"
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
        working: handlers and sensors that work, such as ``handler:ping``, ``sensor:board``.
        faults: what does not work -> why: handlers and sensors, and the agent's own parts on this device.
    """

    is_ready: bool
    process_id: int
    version: str
    is_connected: bool
    detail: str
    alive_s: float
    working: frozenset[str] = frozenset()
    faults: Mapping[str, str] = field(default_factory=dict)


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
        is_awaited = now_s >= proven_s
        if is_awaited and not is_due:
            self.missing = "it is ready, and has not said since that it makes progress: it hangs"
        elif is_due:
            lost = self._lost(seen)
            if not lost:
                return Verdict.KEEP
            self.missing = "; ".join(
                f"{name.replace(':', ' ')} worked before and does not now: {why}" for name, why in lost.items()
            )
            # Sensors and the store may come to be well; which handlers there are is settled at the start.
            if any(name.startswith("handler:") for name in lost):
                return Verdict.GO_BACK
        patience_s = _SAYS_WITHIN_S if is_awaited and not is_due else 0.0
        if now_s - self._trial.began_s >= self._trial.deadline_s + patience_s:
            return Verdict.GO_BACK
        return Verdict.WAIT

    def _fault(self, seen: Seen) -> str:
        if not seen.process_id or not seen.is_ready:
            return "the service does not say that it is ready"
        if seen.version != self._trial.version:
            return f"the service runs version {seen.version or 'unknown'}"
        self._has_exchanged = self._has_exchanged or seen.is_connected
        return "" if self._has_exchanged else f"it is ready, and has had no exchange with the server ({seen.detail})"

    def _lost(self, seen: Seen) -> dict[str, str]:
        """What worked before the release and does not work with it, by its name -> why."""
        before = self._trial
        lost = {name: seen.faults.get(name, "it is gone") for name in before.worked_before if name not in seen.working}
        # A handler or sensor that did not work before, or is new, is no reason to go back; the agent's own parts are.
        parts = {name: why for name, why in seen.faults.items() if ":" not in name and name not in before.faults_before}
        return lost | parts
