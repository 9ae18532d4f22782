"""Walk a case through the onboarding table, and say at each step whether the answer is right."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from simulator.onboarding.cases import BEGINNING, Case, ConcurrentRequests, Label, Step, actions_of
from simulator.onboarding.journey import Action, Answer, Verdict, expected_answers, judge
from simulator.onboarding.session import Accounts, LabelSession, Observed, Subject


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a walk.

    Attributes:
        action: what was asked; of requests in flight together the names of all, with their counts.
        expected: the good answers, in words.
        answered: the answer, in words.
        detail: the service's own words, or the members that contradict each other.
    """

    action: str
    expected: str
    answered: str
    detail: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.action}: {self.answered}{f' ({self.detail})' if self.detail else ''}; expected {self.expected}"


def walk(accounts: Accounts, case: Case, subjects: Sequence[Subject]) -> list[StepReport]:
    """Take the steps until one gets a wrong answer; never raises for what the service or the network does.

    Args:
        accounts: who makes the requests.
        case: says in which state each label begins.
        subjects: one for each of its labels.
    """
    same_as = [0 if label is Label.COPY else index for index, label in enumerate(case.labels)]
    states = [frozenset({BEGINNING[label]}) for label in case.labels]
    ids: dict[str, LabelSession] = {}
    sessions = [LabelSession(accounts, subject, ids) for subject in subjects]
    reports: list[StepReport] = []
    for step in case.steps:
        index = same_as[step.label if isinstance(step, Step) else 0]
        actions = actions_of(step)
        expected = "what some order of them explains"
        if isinstance(step, ConcurrentRequests):
            seen = _race(sessions[index], actions)
        else:
            seen = [sessions[index].perform(step.action)]
            expected = " or ".join(expected_answers(states[index], step.action))
        verdict, states[index] = judge(states[index], list(zip(actions, (one.answer for one in seen), strict=True)))
        answered = _counted([one.answer.value for one in seen])
        detail = "; ".join(dict.fromkeys(one.detail for one in seen if one.detail))
        reports.append(StepReport(_counted(list(actions)), expected, answered, detail, verdict))
        if verdict is Verdict.FAILED:
            break
    return reports


def _race(session: LabelSession, actions: Sequence[Action]) -> list[Observed]:
    """All at once, from threads that wait for each other; their answers are stored when the last has come."""
    if Action.REMOVE in actions and session.lacks_id:
        session.perform(Action.LIST)  # once the first removal is through, no list names the device for the others
    start = threading.Barrier(len(actions))

    def ask(action: Action) -> Observed:
        start.wait()
        return session.ask(action)

    with ThreadPoolExecutor(len(actions), thread_name_prefix="race") as pool:
        found = list(pool.map(ask, actions))
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
