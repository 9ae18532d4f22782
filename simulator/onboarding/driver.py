"""Walk labels through the onboarding journey and report what the service did at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.errors import ServiceError, UnexpectedAnswer
from simulator.onboarding.journey import (
    KEEP,
    ROUND_TRIP,
    Action,
    State,
    Verdict,
    expected_answers,
    judge,
)
from simulator.onboarding.steps import LabelSession, OnboardingService, Subject, Timing, ends_the_run


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of one label's journey.

    Attributes:
        action: what was asked.
        expected: the good answers, in words; empty when the step was skipped.
        answered: the answer, in words; empty when the step was skipped.
        detail: the service's own words, or why the step was skipped.
        duration_s: of the request that was answered.
        waited_s: for the quota, before it.
        verdict: what it proved.
    """

    action: Action
    expected: str
    answered: str
    detail: str
    duration_s: float
    waited_s: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class JourneyReport:
    """What happened to one label.

    Attributes:
        subject: the label.
        device_id: as the service named it; empty when it never did.
        steps: in order.
        state: what the service last told us about the device.
        stopped_by: the error after which going on makes no sense, for this label and any other.
    """

    subject: Subject
    device_id: str
    steps: tuple[StepReport, ...]
    state: State
    stopped_by: ServiceError | None

    @property
    def passed(self) -> bool:
        """Whether each step got an expected answer."""
        return all(step.verdict is Verdict.PASSED for step in self.steps)


@dataclass(frozen=True, slots=True)
class OnboardingReport:
    """What happened to all labels.

    Attributes:
        user_id: the account they were linked to.
        journeys: one per label that was begun, in order.
        not_begun: labels that were left when the run was stopped.
        stopped_by: why it was.
    """

    user_id: str
    journeys: tuple[JourneyReport, ...]
    not_begun: tuple[Subject, ...]
    stopped_by: ServiceError | None

    @property
    def passed(self) -> bool:
        """Whether every label went the whole way."""
        return not self.not_begun and all(journey.passed for journey in self.journeys)

    @property
    def still_registered(self) -> tuple[JourneyReport, ...]:
        """The journeys whose device the service still has."""
        return tuple(journey for journey in self.journeys if journey.state is State.REGISTERED)


def drive_labels(
    subjects: Sequence[Subject],
    service: OnboardingService,
    *,
    user_id: str,
    remove: bool,
    timing: Timing,
    on_journey: Callable[[JourneyReport, int, int], None] | None = None,
) -> OnboardingReport:
    """Drive every label through scan, register, list and, when asked, remove.

    A step that fails does not stop the journey: what still makes sense is done, so a device that was registered is
    removed. The run stops when the service cannot be reached or does not take the keys.

    Args:
        subjects: the labels.
        service: any server of the specification.
        user_id: the account to link the devices to.
        remove: remove each device again and see that it is gone.
        timing: clock, sleep and how long a step may wait for the quota.
        on_journey: told after each label, with the labels done and in all.
    """
    journeys: list[JourneyReport] = []
    for index, subject in enumerate(subjects):
        journey = drive_label(subject, service, user_id=user_id, actions=ROUND_TRIP if remove else KEEP, timing=timing)
        journeys.append(journey)
        if on_journey:
            on_journey(journey, index + 1, len(subjects))
        if journey.stopped_by:
            return OnboardingReport(user_id, tuple(journeys), tuple(subjects[index + 1 :]), journey.stopped_by)
    return OnboardingReport(user_id, tuple(journeys), (), None)


def drive_label(
    subject: Subject, service: OnboardingService, *, user_id: str, actions: Sequence[Action], timing: Timing
) -> JourneyReport:
    """Drive one label through these actions; never raises for what the service or the network does."""
    session = LabelSession(service, subject, user_id, timing)
    state = State.UNKNOWN
    steps: list[StepReport] = []
    stopped_by: ServiceError | None = None
    for action in actions:
        expected = expected_answers(state, action)
        if expected is None or stopped_by:
            reason = "the run was stopped" if stopped_by else f"makes no sense for a device that is {state}"
            steps.append(StepReport(action, "", "", reason, 0.0, 0.0, Verdict.SKIPPED))
            continue
        observed = session.perform(action)
        judgement = judge(state, action, observed.answer)
        state = judgement.state
        steps.append(
            StepReport(
                action,
                " or ".join(expected),
                observed.answer,
                observed.detail,
                observed.duration_s,
                observed.waited_s,
                judgement.verdict,
            )
        )
        # Before anything was answered as it should be, an answer in another language is another server's.
        foreign = isinstance(observed.error, UnexpectedAnswer) and state is State.UNKNOWN
        if judgement.verdict is Verdict.FAILED and (foreign or ends_the_run(observed.error)):
            stopped_by = observed.error
    return JourneyReport(subject, session.device_id, tuple(steps), state, stopped_by)
