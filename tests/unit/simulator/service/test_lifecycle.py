from __future__ import annotations

import itertools

import pytest

from agent.wire.command_states import FINAL_STATES, OPEN_STATES, RESULT_STATES, CommandStatus
from simulator.service.core.lifecycle import EVENT_OF_STATUS, MOVES, Event, move

S = CommandStatus


def test_every_state_has_its_moves():
    assert set(MOVES) == set(CommandStatus)


@pytest.mark.parametrize("status", sorted(FINAL_STATES - {S.TIMED_OUT}))
def test_a_final_state_is_left_by_nothing(status):
    assert all(move(status, event) is None for event in Event)


def test_a_late_result_is_taken_and_nothing_else_leaves_timed_out():
    taken = {event: move(S.TIMED_OUT, event) for event in Event if move(S.TIMED_OUT, event)}
    assert taken == {Event.SUCCEED: S.SUCCEEDED, Event.FAIL: S.FAILED, Event.REJECT: S.REJECTED}


@pytest.mark.parametrize("status", sorted(OPEN_STATES))
def test_an_open_command_can_end_in_every_way_that_fits_it(status):
    assert {move(status, EVENT_OF_STATUS[s]) for s in RESULT_STATES} == set(RESULT_STATES)
    assert move(status, Event.CANCEL) is S.CANCELED
    assert move(status, Event.LAPSE) is (S.EXPIRED if status is S.QUEUED else S.TIMED_OUT)


def test_no_sequence_of_events_brings_a_command_back_to_queued_or_from_progress_to_delivered():
    for events in itertools.product(Event, repeat=4):
        status = S.QUEUED
        for event in events:
            after = move(status, event)
            if after is None:
                continue
            assert after is not S.QUEUED
            assert not (status is S.IN_PROGRESS and after is S.DELIVERED)
            status = after
