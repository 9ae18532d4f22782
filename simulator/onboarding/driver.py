"""Walk labels and cases through the onboarding table and report what the service did at each step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.errors import AgentError, Forbidden, TransportError, Unauthorized, UnexpectedAnswer
from simulator.onboarding.cases import BEGINNING, KEEP, ROUND_TRIP, Case, ConcurrentRequests, Label, Step, actions_of
from simulator.onboarding.exchange import Exchange
from simulator.onboarding.journey import (
    Action,
    Answer,
    Judgement,
    State,
    StepVerdict,
    expected_answers,
    judge_together,
)
from simulator.onboarding.quota import QuotaGate, Timing
from simulator.onboarding.steps import (
    Account,
    LabelSession,
    Observed,
    OnboardingService,
    RunContext,
    Subject,
    ends_the_run,
)

LOST: Final = (TransportError, UnexpectedAnswer)
"""No answer, or none of the service: the next request may be answered all the same."""
_LOST_IN_A_ROW: Final = 3
_TOGETHER_S: Final = 1.0
"""How long the requests of a race wait for each other; they are ready within milliseconds."""
_KNOWN = {State.REGISTERED, State.TAKEN, State.REMOVED}


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One request of a step, for reports and profiles.

    Attributes:
        exchange: what went over the wire at last; None where nobody took note.
    """

    action: Action
    answer: Answer
    exchange: Exchange | None


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a walk.

    Attributes:
        action: what was asked; of requests in flight together the names of all, with their counts.
        label: which of the walk's labels.
        expected: the good answers, in words; empty when the step was skipped.
        answered: the answer, in words; empty when the step was skipped.
        detail: the service's own words, or why the step was skipped.
        duration_s: of the request that was answered.
        waited_s: for the quota, before it.
        verdict: what it proved.
        asked: each request.
    """

    action: str
    label: int
    expected: str
    answered: str
    detail: str
    duration_s: float
    waited_s: float
    verdict: StepVerdict
    asked: tuple[StepRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class JourneyReport:
    """The steps of one label, or of one case, with their verdicts.

    Attributes:
        subject: the (first) label.
        device_id: as the service named it; empty when it never did.
        steps: in order.
        state: of the device, by the last answer about it.
        stopped_by: what its last request came to, when that was refused credentials or no answer.
    """

    subject: Subject
    device_id: str
    steps: tuple[StepReport, ...]
    state: State
    stopped_by: AgentError | None

    @property
    def passed(self) -> bool:
        """Whether each step got a good answer."""
        return all(step.verdict.is_good for step in self.steps)


class Outage:
    """Decides after each journey whether the service is gone: one lost answer costs one journey, not the run.

    Args:
        was_answered: the service has answered something before.
    """

    def __init__(self, *, was_answered: bool = False) -> None:
        self._was_answered = was_answered
        self._in_a_row = 0

    def is_over(self, journey: JourneyReport) -> bool:
        """Whether going on makes no sense after this journey."""
        return self.ends_with(journey.stopped_by, answered=any(step.verdict.is_good for step in journey.steps))

    def ends_with(self, error: AgentError | None, *, answered: bool = False) -> bool:
        """Whether going on makes no sense: credentials refused, never an answer, or 3 times in a row none at last.

        Args:
            error: what the last request came to; None when it was answered.
            answered: whether a request before it was.
        """
        self._was_answered = self._was_answered or answered or error is None
        self._in_a_row = 0 if error is None else self._in_a_row + 1
        if isinstance(error, (Unauthorized, Forbidden)):
            return True
        return error is not None and (not self._was_answered or self._in_a_row >= _LOST_IN_A_ROW)


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
    stopped_by: AgentError | None

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
    service: OnboardingService | RunContext,
    *,
    user_id: str,
    remove: bool,
    timing: Timing,
    on_journey: Callable[[JourneyReport, int, int], None] | None = None,
) -> OnboardingReport:
    """Drive every label through scan, register, list and, when asked, remove.

    A step that fails does not stop the journey: what still makes sense is done, so a device that was registered is
    removed. The run stops when the service does not take the keys, or cannot be reached: at once when it never was,
    else after three labels in a row.

    Args:
        subjects: the labels.
        service: any server of the specification, or a context in front of one.
        user_id: the account to link the devices to.
        remove: remove each device again and see that it is gone.
        timing: clock, sleep and how long a step may wait for the quota.
        on_journey: called after each label, with the labels done and in all.
    """
    context = service if isinstance(service, RunContext) else RunContext(Account(service, QuotaGate(timing)), user_id)
    journeys: list[JourneyReport] = []
    outage = Outage()
    for index, subject in enumerate(subjects):
        journey = drive_label(subject, context, steps=ROUND_TRIP if remove else KEEP, timing=timing)
        journeys.append(journey)
        if on_journey:
            on_journey(journey, index + 1, len(subjects))
        if outage.is_over(journey):
            return OnboardingReport(user_id, tuple(journeys), tuple(subjects[index + 1 :]), journey.stopped_by)
    return OnboardingReport(user_id, tuple(journeys), (), None)


def drive_label(subject: Subject, context: RunContext, *, steps: Sequence[Step], timing: Timing) -> JourneyReport:
    """Drive one given label through these steps; never raises for what the service or the network does."""
    return _Walk(context, [subject], (Label.GIVEN,), timing).go(steps)


def drive_case(case: Case, subjects: Sequence[Subject], context: RunContext, timing: Timing) -> JourneyReport:
    """Drive a case with its labels; never raises for what the service or the network does.

    Args:
        case: what to do.
        subjects: one for each of its labels; a copy's is not used.
        context: of the run; with a stranger when the case needs one.
        timing: clock and sleep.
    """
    return _Walk(context, subjects, case.labels, timing).go(case.steps)


class _Walk:
    """One walk: a session and the possible states for each label, and what has failed so far."""

    def __init__(
        self, context: RunContext, subjects: Sequence[Subject], labels: Sequence[Label], timing: Timing
    ) -> None:
        self._same_as = [0 if label is Label.COPY else index for index, label in enumerate(labels)]
        self._states = [frozenset({BEGINNING[label]}) for label in labels]
        ids: dict[str, LabelSession] = {}
        self._sessions = [LabelSession(context, subject, timing.clock, ids) for subject in subjects]
        self._steps: list[StepReport] = []
        self._stopped_by: AgentError | None = None
        self._is_over = False

    def go(self, steps: Sequence[Step | ConcurrentRequests]) -> JourneyReport:
        for step in steps:
            reason = self._reason_to_skip(step)
            self._steps.append(_skipped(step, reason) if reason else self._do(step))
        first = self._states[0]
        state = next(iter(first)) if len(first) == 1 else State.UNKNOWN
        session = self._sessions[0]
        return JourneyReport(session.subject, session.device_id, tuple(self._steps), state, self._stopped_by)

    def _reason_to_skip(self, step: Step | ConcurrentRequests) -> str:
        """After a failure only a device that is known is looked after; anything else would be a second guess."""
        if self._is_over:
            return "not asked: the credentials were refused, or there was no answer twice in a row"
        states = self._states[self._index(step)]
        if any(done.verdict is StepVerdict.FAILED for done in self._steps) and not states <= _KNOWN:
            return f"not asked: a step before failed, and the device is {_names(states)} for all that is known"
        return ""

    def _index(self, step: Step | ConcurrentRequests) -> int:
        return self._same_as[step.label if isinstance(step, Step) else 0]

    def _do(self, step: Step | ConcurrentRequests) -> StepReport:
        index = self._index(step)
        session, states = self._sessions[index], self._states[index]
        actions = actions_of(step)
        seen = [session.perform(actions[0])] if isinstance(step, Step) else _race(session, actions)
        answered = list(zip(actions, (one.answer for one in seen), strict=True))
        judgement = judge_together(states, answered)
        wants = step.wants if isinstance(step, Step) else frozenset()
        if wants and not wants >= {answer for _, answer in answered}:
            judgement = Judgement(StepVerdict.FAILED, states)
        if judgement.verdict is StepVerdict.FAILED:
            lost = self._reason_to_stop(seen, states)
            self._is_over = lost is not None and (self._stopped_by is not None or not isinstance(lost, LOST))
            self._stopped_by = lost
            # One wrong answer changes nothing that was known; after a race that nothing explains, nothing is known.
            self._states[index] = frozenset({State.UNKNOWN}) if isinstance(step, ConcurrentRequests) else states
        else:
            self._stopped_by = None
            self._states[index] = judgement.states
        expected = tuple(wants) or expected_answers(states, actions[0])
        return StepReport(
            _counted([action.value for action in actions]),
            step.label if isinstance(step, Step) else 0,
            " or ".join(expected) if isinstance(step, Step) else "what some order of them explains",
            _counted([one.answer.value for one in seen]),
            _details(seen),
            max(one.duration_s for one in seen),
            max(one.waited_s for one in seen),
            judgement.verdict,
            tuple(StepRequest(action, one.answer, one.last) for action, one in zip(actions, seen, strict=True)),
        )

    def _reason_to_stop(self, seen: Sequence[Observed], states: frozenset[State]) -> AgentError | None:
        # Before anything was answered as it should be, an answer in another language is another server's.
        is_first = State.UNKNOWN in states or not self._steps
        for one in seen:
            if ends_the_run(one.error) or (isinstance(one.error, UnexpectedAnswer) and is_first):
                return one.error
        return None


def _race(session: LabelSession, actions: Sequence[Action]) -> list[Observed]:
    """All at once, from threads that wait for each other; their answers are stored when the last has come."""
    if Action.REMOVE in actions and session.lacks_id:
        session.perform(Action.LIST)  # once the first removal is through, no list names the device for the others
    seen: list[Observed | None] = [None] * len(actions)
    start = threading.Barrier(len(actions))

    def run(index: int) -> None:
        came = threading.Event()

        def wait() -> None:
            came.set()
            with contextlib.suppress(threading.BrokenBarrierError):  # one is kept by the quota: go without it
                start.wait(_TOGETHER_S)

        seen[index] = session.ask(actions[index], wait=wait)
        if not came.is_set():
            start.abort()

    threads = [threading.Thread(target=run, args=(index,), name=f"race-{index}") for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [one for one in seen if one is not None]
    if Action.REMOVE not in actions:
        found = _marked_doubles(found)
    for action, one in zip(actions, found, strict=True):
        session.learn(action, one)
    return found


def _marked_doubles(seen: Sequence[Observed]) -> list[Observed]:
    """Registrations that made another device than the first one are no answer to the same registration."""
    first = next((one.device_id for one in seen if one.answer is Answer.LINKED and one.device_id), "")
    return [
        replace(one, answer=Answer.LINKED_AGAIN)
        if one.answer is Answer.LINKED and one.device_id and one.device_id != first
        else one
        for one in seen
    ]


def _skipped(step: Step | ConcurrentRequests, reason: str) -> StepReport:
    names = _counted([action.value for action in actions_of(step)])
    label = step.label if isinstance(step, Step) else 0
    return StepReport(names, label, "", "", reason, 0.0, 0.0, StepVerdict.SKIPPED)


def _counted(words: Sequence[str]) -> str:
    """``4 x register, 4 x another user registers``; a word that is alone stays alone."""
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return ", ".join(word if count == 1 else f"{count} x {word}" for word, count in counts.items())


def _details(seen: Sequence[Observed]) -> str:
    return "; ".join(dict.fromkeys(one.detail for one in seen if one.detail))


def _names(states: frozenset[State]) -> str:
    return " or ".join(sorted(states))
