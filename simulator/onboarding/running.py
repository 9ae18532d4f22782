"""The run over all cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from agent.errors import AgentError, ServiceError
from agent.wire.answers import one_line
from simulator.onboarding.case_labels import CaseLabels, CaseUnavailable
from simulator.onboarding.cases import Case, ConcurrentRequests
from simulator.onboarding.driver import JourneyReport, Outage, StepReport, drive_case
from simulator.onboarding.journey import StepVerdict
from simulator.onboarding.quota import Timing
from simulator.onboarding.steps import RunContext


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What happened in one case.

    Attributes:
        journey: None when the case could not be played; of a race the first play that failed, or the first.
        skipped: why it could not; empty when it was.
        problem: what made it fail before its first step; empty when nothing did.
        plays: of a race, how often it was played.
        gaps_s: of each play of a race, the shortest time between the sending of two of its requests.
    """

    case: Case
    journey: JourneyReport | None
    skipped: str = ""
    problem: str = ""
    plays: int = 1
    gaps_s: tuple[float, ...] = ()

    @property
    def is_race(self) -> bool:
        """Whether requests were in flight together."""
        return self.journey is not None and any(isinstance(step, ConcurrentRequests) for step in self.case.steps)

    @property
    def verdict(self) -> StepVerdict:
        """The worst one of its steps."""
        if self.journey is None:
            return StepVerdict.FAILED if self.problem else StepVerdict.SKIPPED
        found = {step.verdict for step in self.journey.steps}
        return next(
            one
            for one in (StepVerdict.FAILED, StepVerdict.ALLOWED, StepVerdict.SKIPPED, StepVerdict.PASSED)
            if one in found
        )


@dataclass(frozen=True, slots=True)
class CasesReport:
    """What happened in all cases.

    Attributes:
        cases: those that were begun or skipped, in order.
        not_begun: those that were left when the run was stopped.
        stopped_by: why it was.
    """

    cases: tuple[CaseReport, ...]
    not_begun: tuple[Case, ...] = ()
    stopped_by: AgentError | None = None

    @property
    def was_played(self) -> bool:
        """Whether any case could be played."""
        return any(not report.skipped for report in self.cases)

    @property
    def passed(self) -> bool:
        """Whether the service did nothing wrong in any case."""
        return not self.not_begun and all(report.verdict is not StepVerdict.FAILED for report in self.cases)

    def count(self, verdict: StepVerdict) -> int:
        """How many cases ended so."""
        return sum(report.verdict is verdict for report in self.cases)


@dataclass(frozen=True, slots=True)
class Users:
    """The users that devices are registered for; an empty one is made up.

    Attributes:
        user_id, other_user_id: existing users; empty for new ones in every case.
    """

    user_id: str = ""
    other_user_id: str = ""


def run_cases(
    cases: Sequence[Case],
    context: RunContext,
    case_labels: CaseLabels,
    timing: Timing,
    *,
    run: str,
    users: Users | None = None,
    repeat: int = 1,
    on_case: Callable[[int, int], None] | None = None,
) -> CasesReport:
    """Play each case with labels and users of its own, so that none can spoil another.

    A lost answer costs its case; three cases in a row that end with one end the run.

    Args:
        cases: what to play.
        context: of the run; its users are replaced. Its service has answered before.
        case_labels: makes the labels.
        timing: clock, sleep and patience.
        run: names the users.
        users: existing ones, where a service does not make users up.
        repeat: how often a race is played, until it fails.
        on_case: called after each, with the cases done and in all.
    """
    reports: list[CaseReport] = []
    given, outage = users or Users(), Outage(was_answered=True)

    def play(case: Case, tag: str) -> JourneyReport:
        name = f"onboard-{run}-{tag}"
        acting = replace(
            context, user_id=given.user_id or f"{name}-a", other_user_id=given.other_user_id or f"{name}-b"
        )
        return drive_case(case, case_labels.labels_of(case, tag), acting, timing)

    for index, case in enumerate(cases):
        try:
            report = _play(case, f"{index + 1:03d}", play, repeat)
        except CaseUnavailable as reason:
            reports.append(CaseReport(case, None, str(reason)))
            continue
        except ServiceError as error:
            report = CaseReport(case, None, problem=f"its product could not be made: {one_line(str(error))}")
            stopped_by: AgentError | None = error if outage.ends_with(error) else None
        else:
            journey = report.journey
            stopped_by = journey.stopped_by if journey is not None and outage.is_over(journey) else None
        reports.append(report)
        if on_case:
            on_case(index + 1, len(cases))
        if stopped_by is not None:
            return CasesReport(tuple(reports), tuple(cases[index + 1 :]), stopped_by)
    return CasesReport(tuple(reports))


def _play(case: Case, tag: str, play: Callable[[Case, str], JourneyReport], repeat: int) -> CaseReport:
    """A case once, or a race until it fails or was played so often."""
    if not any(isinstance(step, ConcurrentRequests) for step in case.steps):
        return CaseReport(case, play(case, tag))
    first: JourneyReport | None = None
    gaps_s: list[float] = []
    for number in range(repeat):
        journey = play(case, f"{tag}-{number + 1}" if number else tag)
        gaps_s += [gap for step in journey.steps if len(step.asked) > 1 and (gap := _gap_s(step)) is not None]
        first = first or journey
        if not journey.passed:
            return CaseReport(case, journey, plays=number + 1, gaps_s=tuple(gaps_s))
    return CaseReport(case, first, plays=repeat, gaps_s=tuple(gaps_s))


def _gap_s(step: StepReport) -> float | None:
    """The shortest time between the sending of two of a step's requests."""
    sent = sorted(asked.exchange.sent_s for asked in step.asked if asked.exchange is not None)
    return min((later - earlier for earlier, later in pairwise(sent)), default=None)
