from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.onboarding.cases import (
    ADVERSARIAL,
    BEGINNING,
    CASES,
    KEEP,
    ROUND_TRIP,
    ConcurrentRequests,
    Label,
    Step,
    actions_of,
    transitions,
)
from simulator.onboarding.journey import (
    OPEN,
    TABLE,
    Action,
    Answer,
    State,
    StepVerdict,
    expected_answers,
    judge_together,
)

EVERY = [(state, action) for state in State for action in Action]


def judge(state, action, answer):
    return judge_together(frozenset({state}), [(action, answer)])


@pytest.mark.parametrize(("state", "action"), EVERY)
def test_every_action_in_every_state_has_a_verdict_for_every_answer(state, action):
    assert TABLE[state][action]
    for answer in Answer:
        chosen, is_open = TABLE[state][action], OPEN[state].get(action, {})
        verdict = (
            StepVerdict.PASSED if answer in chosen else StepVerdict.ALLOWED if answer in is_open else StepVerdict.FAILED
        )
        assert judge(state, action, answer).verdict is verdict


def test_an_answer_is_either_chosen_or_open_and_never_both():
    for state, action in EVERY:
        assert not TABLE[state][action].keys() & OPEN[state].get(action, {}).keys(), (state, action)


def test_every_state_that_can_be_brought_about_meets_every_action_in_a_case():
    names = {case.name for case in transitions()}
    played = {state for state in State if state is not State.UNKNOWN}
    assert names == {f"{state.value}.{action.value.replace(' ', '_')}" for state in played for action in Action}


def test_no_two_cases_have_one_name():
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_only_names_labels_that_it_has_and_can_be_walked_as_chosen(case):
    """There is a way through the table by chosen answers alone, to the end."""
    states = [frozenset({BEGINNING[label]}) for label in case.labels]
    for step in case.steps:
        index = step.label if isinstance(step, Step) else 0
        assert index < len(case.labels)
        index = 0 if case.labels[index] is Label.COPY else index
        walked = states[index]
        for action in actions_of(step):
            walked = frozenset(after for state in walked for after in TABLE[state][action].values())
        assert walked
        states[index] = walked
    assert case.title.endswith(".")


def test_a_race_is_right_when_some_order_of_its_requests_explains_every_answer():
    free = frozenset({State.UNREGISTERED})
    register, other, linked, conflict = Action.REGISTER, Action.REGISTER_OTHER, Answer.LINKED, Answer.CONFLICT
    ours = judge_together(free, [(register, linked)] * 4 + [(other, conflict)] * 4)
    assert (ours.verdict, ours.states) == (StepVerdict.PASSED, {State.REGISTERED})
    theirs = judge_together(free, [(register, conflict)] * 4 + [(other, linked)] * 4)
    assert (theirs.verdict, theirs.states) == (StepVerdict.PASSED, {State.TAKEN})


@pytest.mark.parametrize(
    "answers",
    [
        [(Action.REGISTER, Answer.LINKED), (Action.REGISTER_OTHER, Answer.LINKED)],
        [(Action.REGISTER, Answer.CONFLICT), (Action.REGISTER_OTHER, Answer.CONFLICT)],
        [(Action.REGISTER, Answer.LINKED), (Action.REGISTER, Answer.FAULT)],
    ],
)
def test_a_race_that_no_order_explains_fails(answers):
    free = frozenset({State.UNREGISTERED})
    assert judge_together(free, answers).verdict is StepVerdict.FAILED
    assert judge_together(free, answers).states == free


def test_after_a_race_with_two_ends_the_next_answer_tells_which():
    mine = frozenset({State.REGISTERED})
    both = judge_together(mine, [(Action.REMOVE, Answer.REMOVED), (Action.REGISTER, Answer.LINKED)]).states
    assert both == {State.REGISTERED, State.REMOVED}
    assert judge_together(both, [(Action.LIST, Answer.LISTED)]).states == {State.REGISTERED}
    assert judge_together(both, [(Action.LIST, Answer.NOT_LISTED)]).states == {State.REMOVED}


def test_every_adversary_of_the_specification_has_a_case():
    races = {case.name for case in ADVERSARIAL if any(isinstance(step, ConcurrentRequests) for step in case.steps)}
    assert {"race_same_user", "race_two_users", "race_remove", "race_remove_register"} <= races
    used = {label for case in CASES for label in case.labels}
    assert used == set(Label) - {Label.GIVEN}


def test_a_round_trip_with_the_answers_of_the_specification_ends_removed():
    state = State.UNKNOWN
    answers = (Answer.SHOWN, Answer.LINKED, Answer.LISTED, Answer.REMOVED, Answer.NOT_LISTED)
    for step, answer in zip(ROUND_TRIP, answers, strict=True):
        judgement = judge(state, step.action, answer)
        assert judgement.verdict is StepVerdict.PASSED
        (state,) = judgement.states
    assert state is State.REMOVED


def test_a_label_that_is_registered_already_goes_through_registration_to_the_list():
    state = State.UNKNOWN
    for step, answer in zip(KEEP, (Answer.SHOWN_REGISTERED, Answer.LINKED, Answer.LISTED), strict=True):
        judgement = judge(state, step.action, answer)
        assert judgement.verdict is StepVerdict.PASSED
        (state,) = judgement.states
    assert state is State.REGISTERED


@pytest.mark.parametrize(
    ("state", "action", "answer"),
    [
        (State.REMOVED, Action.LIST, Answer.LISTED),
        (State.REMOVED, Action.SCAN, Answer.SHOWN_REGISTERED),
        (State.REMOVED, Action.REMOVE, Answer.REMOVED),
        (State.REGISTERED, Action.LIST, Answer.NOT_LISTED),
        (State.REGISTERED, Action.REGISTER, Answer.LINKED_AGAIN),
        (State.REGISTERED, Action.LIST, Answer.LISTED_TWICE),
        (State.REGISTERED, Action.SCAN, Answer.SHOWN),
        (State.REGISTERED, Action.REGISTER_OTHER, Answer.LINKED),
        (State.REGISTERED, Action.REMOVE_STRANGER, Answer.REMOVED),
        (State.UNKNOWN, Action.SCAN, Answer.SHOWN_ANOTHER),
    ],
)
def test_an_answer_that_contradicts_what_the_service_said_before_fails_and_changes_nothing(state, action, answer):
    judgement = judge(state, action, answer)
    assert judgement.verdict is StepVerdict.FAILED
    assert judgement.states == {state}


_NEVER_GOOD = (Answer.FAULT, Answer.NONE, Answer.NONSENSE, Answer.RATE_LIMITED, Answer.LISTED_TWICE)


@given(st.sampled_from(State), st.sampled_from(Action), st.sampled_from(_NEVER_GOOD))
def test_no_failure_of_the_service_is_ever_good(state, action, answer):
    assert not judge(state, action, answer).verdict.is_good
    assert answer not in expected_answers([state], action)
