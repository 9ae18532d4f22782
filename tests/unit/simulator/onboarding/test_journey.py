from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.onboarding.journey import (
    KEEP,
    ROUND_TRIP,
    TABLE,
    Action,
    Answer,
    State,
    Verdict,
    expected_answers,
    judge,
)


def test_every_state_has_a_row():
    assert set(TABLE) == set(State)


def test_a_round_trip_with_the_answers_of_the_specification_ends_removed():
    state = State.UNKNOWN
    answers = (Answer.SHOWN, Answer.LINKED, Answer.LISTED, Answer.REMOVED, Answer.NOT_LISTED)
    for action, answer in zip(ROUND_TRIP, answers, strict=True):
        judgement = judge(state, action, answer)
        assert judgement.verdict is Verdict.PASSED
        state = judgement.state
    assert state is State.REMOVED


def test_a_label_that_is_registered_already_goes_through_registration_to_the_list():
    state = State.UNKNOWN
    for action, answer in zip(KEEP, (Answer.SHOWN_REGISTERED, Answer.LINKED, Answer.LISTED), strict=True):
        judgement = judge(state, action, answer)
        assert judgement.verdict is Verdict.PASSED
        state = judgement.state
    assert state is State.REGISTERED


@pytest.mark.parametrize(
    ("state", "action", "answer"),
    [
        (State.REMOVED, Action.LIST, Answer.LISTED),
        (State.REMOVED, Action.SCAN, Answer.SHOWN_REGISTERED),
        (State.REMOVED, Action.REMOVE, Answer.REMOVED),
        (State.REGISTERED, Action.LIST, Answer.NOT_LISTED),
        (State.REGISTERED, Action.REGISTER, Answer.CONFLICT),
        (State.UNKNOWN, Action.SCAN, Answer.SHOWN_ANOTHER),
    ],
)
def test_an_answer_that_contradicts_what_the_service_said_before_fails_and_changes_nothing(state, action, answer):
    judgement = judge(state, action, answer)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.state is state


@pytest.mark.parametrize("state", [State.UNKNOWN, State.UNREGISTERED])
def test_removing_what_was_never_registered_is_skipped(state):
    assert expected_answers(state, Action.REMOVE) is None
    assert judge(state, Action.REMOVE, Answer.NOT_FOUND).verdict is Verdict.SKIPPED


_NEVER_GOOD = (Answer.FAULT, Answer.NONE, Answer.NONSENSE, Answer.RATE_LIMITED, Answer.REFUSED, Answer.CONFLICT)


@given(st.sampled_from(State), st.sampled_from(Action), st.sampled_from(_NEVER_GOOD))
def test_no_failure_of_the_service_is_ever_a_pass(state, action, answer):
    assert judge(state, action, answer).verdict is not Verdict.PASSED


@given(st.sampled_from(State), st.sampled_from(Action), st.sampled_from(Answer))
def test_the_table_alone_decides(state, action, answer):
    judgement = judge(state, action, answer)
    expected = TABLE[state].get(action, {})
    assert (judgement.verdict is Verdict.PASSED) == (answer in expected)
    assert judgement.state is expected.get(answer, state)
