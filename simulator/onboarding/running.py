"""The run over all cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.errors import AgentError, ServiceError
from simulator.onboarding.cases import Case
from simulator.onboarding.driver import JourneyReport, drive_case
from simulator.onboarding.journey import Verdict
from simulator.onboarding.quota import Timing
from simulator.onboarding.stage import NotStaged, Stage
from simulator.onboarding.steps import Desk


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What happened in one case.

    Attributes:
        journey: None when the case could not be played.
        skipped: why it could not; empty when it was.
    """

    case: Case
    journey: JourneyReport | None
    skipped: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst one of its steps."""
        if self.journey is None:
            return Verdict.SKIPPED
        found = {step.verdict for step in self.journey.steps}
        return next(one for one in (Verdict.FAILED, Verdict.ALLOWED, Verdict.SKIPPED, Verdict.PASSED) if one in found)


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
        return any(report.journey is not None for report in self.cases)

    @property
    def passed(self) -> bool:
        """Whether the service did nothing wrong in any case."""
        return not self.not_begun and all(report.verdict is not Verdict.FAILED for report in self.cases)

    def count(self, verdict: Verdict) -> int:
        """How many cases ended so."""
        return sum(report.verdict is verdict for report in self.cases)


@dataclass(frozen=True, slots=True)
class Users:
    """Whose devices they become.

    Attributes:
        user_id, other_user_id: existing users; empty for new ones in every case.
    """

    user_id: str = ""
    other_user_id: str = ""


def run_cases(
    cases: Sequence[Case],
    desk: Desk,
    stage: Stage,
    timing: Timing,
    *,
    run: str,
    users: Users | None = None,
    on_case: Callable[[int, int], None] | None = None,
) -> CasesReport:
    """Play each case with labels and users of its own, so that none can spoil another.

    Args:
        cases: what to play.
        desk: who acts; its users are replaced.
        stage: makes the labels.
        timing: clock, sleep and patience.
        run: names the users.
        users: existing ones, where a service does not make users up.
        on_case: told after each, with the cases done and in all.
    """
    reports: list[CaseReport] = []
    given = users or Users()
    for index, case in enumerate(cases):
        name = f"onboard-{run}-{index + 1:03d}"
        acting = replace(desk, user_id=given.user_id or f"{name}-a", other_user_id=given.other_user_id or f"{name}-b")
        try:
            subjects = stage.labels_of(case, index + 1)
        except NotStaged as reason:
            reports.append(CaseReport(case, None, str(reason)))
            continue
        except ServiceError as error:
            return CasesReport(tuple(reports), tuple(cases[index:]), error)
        journey = drive_case(case, subjects, acting, timing)
        reports.append(CaseReport(case, journey))
        if on_case:
            on_case(index + 1, len(cases))
        if journey.stopped_by:
            return CasesReport(tuple(reports), tuple(cases[index + 1 :]), journey.stopped_by)
    return CasesReport(tuple(reports))
