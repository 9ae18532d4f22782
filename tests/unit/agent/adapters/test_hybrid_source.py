"""A push as the hint, the list as the truth."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.adapters.hybrid_source import HybridSource
from agent.core.values import Command, CommandPoll
from agent.errors import Offline, TransportError
from tests.fakes import FakeClock, FakeCommandSource

LISTED = CommandPoll((Command("listed", {"command": "ping"}),))
PUSHED = CommandPoll((Command("pushed", {"command": "ping"}),), pushed=True)
QUIET = CommandPoll(pushed=True)


class FakePush(FakeCommandSource):
    def __init__(self, answers: Sequence[object] = ()) -> None:
        super().__init__(answers)
        self.is_up = True


class Bench:
    def __init__(self, pushed: Sequence[object] = (), listed: Sequence[object] = ()) -> None:
        self.clock = FakeClock()
        self.push = FakePush(pushed)
        self.truth = FakeCommandSource(listed)
        self.first_contact = False
        self.source = HybridSource(
            self.push,
            self.truth,
            clock=self.clock,
            slow_s=900.0,
            is_first_contact=lambda: self.first_contact,
            fraction=lambda: 0.5,
        )


def test_the_list_comes_first_and_then_the_pushes():
    bench = Bench([PUSHED], [LISTED])
    assert [bench.source.poll(25), bench.source.poll(25)] == [LISTED, PUSHED]


def test_the_list_is_asked_for_now_and_then():
    bench = Bench([QUIET] * 9, [LISTED, LISTED])
    polls = []
    for _ in range(5):
        polls.append(bench.source.poll(25))
        bench.clock.advance(300)
    assert [poll is LISTED for poll in polls] == [True, False, False, True, False]


def test_a_hint_may_make_the_list_come_sooner():
    bench = Bench([QUIET] * 9, [LISTED, LISTED, LISTED])
    bench.source.poll(25)
    bench.source.set_slow_s(60)
    bench.clock.advance(901)
    bench.source.poll(25)
    bench.clock.advance(61)
    assert bench.source.poll(25) is LISTED


def test_while_the_push_is_away_the_list_is_polled_and_held():
    bench = Bench([], [LISTED, LISTED])
    bench.push.is_up = False
    assert bench.source.poll(25) is LISTED
    assert bench.source.poll(25) is LISTED
    assert bench.truth.waits == [25, 25]


def test_after_the_push_came_back_the_list_is_asked_for_once():
    bench = Bench([QUIET], [LISTED, LISTED, LISTED])
    bench.source.poll(25)
    bench.push.is_up = False
    bench.source.poll(25)
    bench.push.is_up = True
    assert [bench.source.poll(25), bench.source.poll(25)] == [LISTED, QUIET]


def test_a_push_that_goes_away_in_the_middle_is_replaced_by_the_list():
    bench = Bench([Offline("closed", "gone")], [LISTED, LISTED])
    bench.source.poll(25)
    assert bench.source.poll(25) is LISTED


def test_a_list_that_fails_does_not_keep_pushes_away_and_is_not_asked_for_at_once():
    bench = Bench([PUSHED, QUIET, QUIET], [TransportError("down"), TransportError("down"), LISTED])
    assert [bench.source.poll(25), bench.source.poll(25)] == [PUSHED, QUIET]
    bench.clock.advance(2)
    assert bench.source.poll(25) is QUIET
    bench.clock.advance(301)
    assert bench.source.poll(25) is LISTED


def test_at_first_contact_no_push_goes_before_the_list():
    bench = Bench([PUSHED], [TransportError("down"), LISTED])
    bench.first_contact = True
    with pytest.raises(TransportError):
        bench.source.poll(25)
    assert bench.source.poll(25) is LISTED
    bench.first_contact = False
    assert bench.source.poll(25) is PUSHED


def test_without_either_the_error_is_the_list_s():
    bench = Bench([], [TransportError("no network")])
    bench.push.is_up = False
    with pytest.raises(TransportError, match="no network"):
        bench.source.poll(25)


def test_only_a_list_that_came_last_is_acknowledged_as_a_list():
    bench = Bench([PUSHED], [LISTED])
    bench.source.poll(25)
    bench.source.acknowledge(["listed"])
    bench.source.poll(25)
    bench.source.acknowledge(["pushed"])
    assert bench.truth.acknowledged == ["listed"]
    assert bench.push.acknowledged == ["listed", "pushed"]
