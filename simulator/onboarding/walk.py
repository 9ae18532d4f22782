"""Walk a label through the onboarding table, and say at each step whether the answer is right."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.errors import AgentError, Forbidden, ServiceError, TransportError, Unauthorized
from simulator.onboarding.cases import BEGINNING, KEEP, ROUND_TRIP, ConcurrentRequests, Label, Step, actions_of
from simulator.onboarding.journey import Action, Answer, Judgement, State, StepVerdict, expected_answers, judge_together
from simulator.onboarding.session import Accounts, LabelSession, Observed, Subject

_LOST_IN_A_ROW: Final = 3


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a walk.

    Attributes:
        action: what was asked; of requests in flight together the names of all, with their counts.
        expected: the good answers, in words.
        answered: the answer, in words.
        detail: the service's own words, or the members that contradict each other.
        verdict: what it proved.
    """

    action: str
    expected: str
    answered: str
    detail: str
    verdict: StepVerdict

    def __str__(self) -> str:
        return f"{self.action}: {self.answered}{f' ({self.detail})' if self.detail else ''}; expected {self.expected}"


@dataclass(frozen=True, slots=True)
class JourneyReport:
    """The steps of one walk, up to the first that failed.

    Attributes:
        subject: the (first) label.
        device_id: as the service named it; empty when it never did.
        steps: in order.
        is_registered: whether the service still has the device, for all that is known.
        error: what the last request came to, when that was no answer or refused credentials.
    """

    subject: Subject
    device_id: str
    steps: tuple[StepReport, ...]
    is_registered: bool
    error: AgentError | None

    @property
    def passed(self) -> bool:
        """Whether each step got a good answer."""
        return all(step.verdict.is_good for step in self.steps)


def walk(
    accounts: Accounts,
    subjects: Sequence[Subject],
    steps: Sequence[Step | ConcurrentRequests],
    labels: Sequence[Label] = (Label.GIVEN,),
) -> JourneyReport:
    """Take the steps until one gets a wrong answer; never raises for what the service or the network does.

    Args:
        accounts: who makes the requests.
        subjects: one for each label.
        steps: in order.
        labels: how each label came about, which says in which state it begins.
    """
    same_as = [0 if label is Label.COPY else index for index, label in enumerate(labels)]
    states = [frozenset({BEGINNING[label]}) for label in labels]
    ids: dict[str, LabelSession] = {}
    sessions = [LabelSession(accounts, subject, ids) for subject in subjects]
    reports: list[StepReport] = []
    error = None
    for step in steps:
        index = same_as[step.label if isinstance(step, Step) else 0]
        actions = actions_of(step)
        is_race = isinstance(step, ConcurrentRequests)
        seen = _race(sessions[index], actions) if is_race else [sessions[index].perform(actions[0])]
        report, judgement = _judged(step, states[index], seen)
        reports.append(report)
        if not judgement.verdict.is_good:
            error = next((one.error for one in seen if one.error is not None), None)
            break
        states[index] = judgement.states
    return JourneyReport(subjects[0], sessions[0].device_id, tuple(reports), states[0] == {State.REGISTERED}, error)


def _judged(
    step: Step | ConcurrentRequests, states: frozenset[State], seen: Sequence[Observed]
) -> tuple[StepReport, Judgement]:
    actions = actions_of(step)
    judgement = judge_together(states, list(zip(actions, (one.answer for one in seen), strict=True)))
    wants = step.wants if isinstance(step, Step) else frozenset()
    if wants and not wants >= {one.answer for one in seen}:
        judgement = Judgement(StepVerdict.FAILED, states)
    expected = "what some order of them explains"
    if isinstance(step, Step):
        expected = " or ".join(tuple(wants) or expected_answers(states, step.action))
    report = StepReport(
        _counted([action.value for action in actions]),
        expected,
        _counted([one.answer.value for one in seen]),
        "; ".join(dict.fromkeys(one.detail for one in seen if one.detail)),
        judgement.verdict,
    )
    return report, judgement


def _race(session: LabelSession, actions: Sequence[Action]) -> list[Observed]:
    """All at once, from threads that wait for each other; their answers are stored when the last has come."""
    if Action.REMOVE in actions and session.lacks_id:
        session.perform(Action.LIST)  # once the first removal is through, no list names the device for the others
    seen: dict[int, Observed] = {}
    start = threading.Barrier(len(actions))

    def run(index: int) -> None:
        start.wait()
        seen[index] = session.ask(actions[index])

    threads = [threading.Thread(target=run, args=(index,), name=f"race-{index}") for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [seen[index] for index in range(len(actions))]
    if Action.REMOVE not in actions:
        first = next((one.device_id for one in found if one.answer is Answer.LINKED and one.device_id), "")
        # Registrations that made another device than the first one are no answer to the same registration.
        found = [
            replace(one, answer=Answer.LINKED_AGAIN)
            if one.answer is Answer.LINKED and one.device_id not in {"", first}
            else one
            for one in found
        ]
    for action, one in zip(actions, found, strict=True):
        session.learn(action, one)
    return found


def _counted(words: Sequence[str]) -> str:
    """``4 x register, 4 x another user registers``; a word that is alone stays alone."""
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return ", ".join(word if count == 1 else f"{count} x {word}" for word, count in counts.items())


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
    not_begun: tuple[Subject, ...] = ()
    stopped_by: AgentError | None = None

    @property
    def passed(self) -> bool:
        """Whether every label went the whole way."""
        return not self.not_begun and all(journey.passed for journey in self.journeys)


def drive_labels(
    subjects: Sequence[Subject],
    accounts: Accounts,
    *,
    remove: bool,
    on_journey: Callable[[JourneyReport, int, int], None] | None = None,
) -> OnboardingReport:
    """Drive every label through scan, register, list and, when asked, remove and list.

    A label whose step failed is left, removed if it was registered and removal was asked for. The run stops when the
    service refuses the credentials, or does not answer: at once when it never did, else after three labels in a row.

    Args:
        subjects: the labels.
        accounts: who makes the requests.
        remove: remove each device again and see that it is gone.
        on_journey: called after each label, with the labels done and in all.
    """
    journeys: list[JourneyReport] = []
    was_answered, lost = False, 0
    for index, subject in enumerate(subjects):
        journey = walk(accounts, [subject], ROUND_TRIP if remove else KEEP)
        journeys.append(journey)
        if remove and journey.is_registered and not journey.passed and journey.device_id:
            _remove(accounts, journey.device_id)
        if on_journey:
            on_journey(journey, index + 1, len(subjects))
        was_answered = was_answered or not isinstance(journey.error, TransportError)
        lost = lost + 1 if isinstance(journey.error, TransportError) else 0
        if isinstance(journey.error, (Unauthorized, Forbidden)) or lost >= (_LOST_IN_A_ROW if was_answered else 1):
            return OnboardingReport(accounts.user_id, tuple(journeys), tuple(subjects[index + 1 :]), journey.error)
    return OnboardingReport(accounts.user_id, tuple(journeys))


def _remove(accounts: Accounts, device_id: str) -> None:
    with contextlib.suppress(ServiceError):
        accounts.patience.repeat(lambda: accounts.service.remove_device(device_id))
