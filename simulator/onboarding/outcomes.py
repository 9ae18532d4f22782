"""The values of a campaign: its plan, the results of labels, its report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.errors import AgentError
from simulator.onboarding.retrying import ATTEMPTS
from simulator.onboarding.steps import Subject


class Outcome(StrEnum):
    """What became of a label."""

    REGISTERED = "registered"
    REMOVED = "removed"
    FOUND = "registered before"
    """By our user, before this run began."""
    TAKEN = "another user's"
    CONTRADICTED = "contradicted"
    """An answer said another label, user, name or id than was sent or answered before."""
    REFUSED = "refused"
    UNSETTLED = "unsettled"
    """No clear answer yet; the same command again goes on with it."""

    @property
    def is_good(self) -> bool:
        """Whether the device is our user's, or was and is removed as asked."""
        return self in {Outcome.REGISTERED, Outcome.REMOVED, Outcome.FOUND}


@dataclass(frozen=True, slots=True)
class LabelResult:
    """What became of one label.

    Attributes:
        device_id: empty when the service never named it.
        detail: why, for a person.
        begun_late_s: how long after it was due, since too many were in flight.
        took_s: from its beginning to its end, waits included.
        settled_by: ``answer``, ``list`` (the answer was lost) or ``journal`` (an earlier start of this run).
        is_new: the scan said that it was not registered, so that it has the name that this run gave it.
    """

    subject: Subject
    outcome: Outcome
    device_id: str = ""
    detail: str = ""
    begun_late_s: float = 0.0
    took_s: float = 0.0
    settled_by: str = "answer"
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign does.

    Attributes:
        run: names it; devices and idempotency keys carry it.
        user_id: whom the devices are linked to.
        remove: take each device back again.
        rate: labels that arrive in a second; None begins one as soon as another is done.
        concurrency: labels in flight at once.
        attempts: requests for one step at most, those that got a 429 not counted.
    """

    run: str
    user_id: str
    remove: bool = False
    rate: float | None = None
    concurrency: int = 8
    attempts: int = ATTEMPTS


@dataclass(frozen=True, slots=True)
class ListAudit:
    """The list of the user's devices at the end, held against what the answers said.

    Attributes:
        missing: labels that should be in it and are not.
        doubled: labels that are in it more than once.
        left: labels that were removed and are in it.
        contradicted: a text for each label of which it says something else than was answered before.
        problem: why it could not be read; empty when it was.
    """

    missing: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether the list agrees with the answers."""
        return not (self.missing or self.doubled or self.left or self.contradicted or self.problem)


@dataclass(frozen=True, slots=True)
class CampaignReport:
    """What a campaign did.

    Attributes:
        results: of the labels that were begun, in the labels' order; those of earlier starts included.
        not_begun: how many were left.
        ambiguous: registrations whose answer was lost.
        duration_s: of this start.
        stopped_by: why it stopped early.
        was_interrupted: by Ctrl-C.
    """

    results: tuple[LabelResult, ...]
    not_begun: int
    ambiguous: int
    audited: ListAudit
    duration_s: float
    stopped_by: AgentError | None = None
    was_interrupted: bool = False

    @property
    def passed(self) -> bool:
        """Whether every label ended well and the list agrees."""
        return not self.not_begun and self.audited.is_clean and all(one.outcome.is_good for one in self.results)

    def count(self, outcome: Outcome) -> int:
        """How many labels ended so."""
        return sum(one.outcome is outcome for one in self.results)
