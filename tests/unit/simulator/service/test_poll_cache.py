from __future__ import annotations

from simulator.service import waiting
from simulator.service.answers import Answer
from simulator.service.waiting import CachedPoll, PollCache

ANSWER = Answer(200, b"{}", ((b"etag", b'"1"'),))


def test_what_changes_is_forgotten_and_nothing_else():
    polls = PollCache()
    for seq in (1, 2):
        polls.keep(7, f"d{seq}", CachedPoll(seq, ANSWER))
    polls.forget(1)
    polls.forget(1)
    assert polls.find(7, "d1", 0) is None
    assert polls.find(7, "d2", 0) == CachedPoll(2, ANSWER)
    assert polls.find(8, "d2", 0) is None


def test_there_is_a_bound_and_the_first_goes(monkeypatch):
    monkeypatch.setattr(waiting, "CACHED_MAX", 3)
    polls = PollCache()
    for seq in range(5):
        polls.keep(7, f"d{seq}", CachedPoll(seq, ANSWER))
    assert [polls.find(7, f"d{seq}", 0) is not None for seq in range(5)] == [False, False, True, True, True]
