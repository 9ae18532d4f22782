"""A stream of commands that did not end as the scenario expects fails the run."""

from __future__ import annotations

import pytest

from simulator.fleet.record import CommandEnds
from simulator.fleet.run.command_ends import ended_otherwise, joined_ends


def ping(ends, *, expect="succeeded", sent=10, refused=0, unanswered=0):
    return CommandEnds("ping", expect, sent, refused, unanswered, ends)


@pytest.mark.parametrize("expect", ["succeeded", "failed", "rejected", "expired"])
@pytest.mark.parametrize("end", ["succeeded", "failed", "rejected", "expired", "open"])
def test_every_other_end_than_the_expected_one_is_told(expect, end):
    told = list(ended_otherwise([ping({end: 10}, expect=expect)], whole=True))
    words = "had not ended" if end == "open" else end
    assert told == ([] if end == expect else [f"of 10 commands 'ping' that should have ended as {expect}: 10 {words}"])
    assert list(ended_otherwise([ping({end: 10}, expect="any")], whole=True)) == []


def test_one_of_many_is_enough():
    told = list(ended_otherwise([ping({"succeeded": 9, "failed": 1})], whole=True))
    assert told == ["of 10 commands 'ping' that should have ended as succeeded: 1 failed"]


def test_what_has_not_ended_is_nobody_s_fault_in_a_run_that_ended_early():
    assert list(ended_otherwise([ping({"succeeded": 2, "open": 8})], whole=False)) == []
    assert list(ended_otherwise([ping({}, unanswered=10)], whole=False)) == []
    assert len(list(ended_otherwise([ping({"failed": 2, "open": 8})], whole=False))) == 1


def test_a_stream_of_which_no_command_is_known_does_not_pass():
    told = list(ended_otherwise([ping({}, unanswered=10)], whole=True))
    assert told == ["none of 10 commands 'ping' is known to have ended as succeeded"]


def test_commands_that_the_lists_name_otherwise_may_be_those_that_stayed_open():
    strangers = CommandEnds("", "any", 0, 0, 0, {"succeeded": 8})
    assert list(ended_otherwise([ping({"open": 8}), strangers], whole=True)) == []
    told = list(ended_otherwise([ping({"open": 10}), strangers], whole=True))
    assert told == ["of 10 commands 'ping' that should have ended as succeeded: 2 had not ended"]
    assert list(ended_otherwise([ping({}, unanswered=10), strangers], whole=True)) == []


def test_the_streams_of_all_workers_are_added_up():
    one, other = ping({"succeeded": 2, "open": 1}, sent=4, unanswered=1), ping({"succeeded": 3}, refused=7)
    assert joined_ends([(one,), (), (other,)]) == (ping({"succeeded": 5, "open": 1}, sent=14, refused=7, unanswered=1),)
