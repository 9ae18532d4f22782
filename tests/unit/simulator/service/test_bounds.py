"""Every collection that lives as long as the service has its bound, or why it needs none, in docs/service.md."""

from __future__ import annotations

import re

from agent.wire import paths
from simulator.service import waiting
from simulator.service.answers import Answer
from simulator.service.passwords import Attempts
from simulator.service.routes import sensor_data
from simulator.service.waiting import CachedPoll, PollCache
from tests.source_search import ROOT, caches_in, collections_in, trees

DOCUMENT = ROOT / "docs" / "service.md"
OF_ONE_REQUEST = {
    *(
        "Exchange.ids",
        "Exchange.asked",
        "Exchange.headers",
        "Exchange.numbers",
        "Reply.headers",
        "Capture._parts",
        "CorkedTransport._held",
        "Inbox._kept",
        "Sending._body",
    ),
    *("_States.moved", "Schemas._found", "Schemas.components"),
}
"""Gone with the request, the connection's turn, the transaction or the call that they belong to."""


def test_each_collection_of_the_service_has_its_bound_in_the_document():
    found = set()
    for path, tree in trees("simulator/service"):
        if "migrations" not in path.parts:
            found |= caches_in(tree) | {f"{owner}.{name}" if owner else name for owner, name in collections_in(tree)}
    section = DOCUMENT.read_text(encoding="utf-8").partition("### What lives as long as the service")[2]
    rows = re.findall(r"^\| (`.*?) \| (.+?) \|$", section.partition("\n## ")[0], re.MULTILINE)
    written = {name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)}
    missing = found - OF_ONE_REQUEST - written
    assert missing == set(), "write its bound, or why it needs none, into docs/service.md"
    assert written - found == set(), "docs/service.md names what is not there any more"
    assert found >= OF_ONE_REQUEST


def _answer(size: int) -> Answer:
    return Answer(200, b"x" * size, ((b"etag", b'"1"'),))


def test_kept_polls_are_bounded_in_bytes_and_the_first_goes(monkeypatch):
    monkeypatch.setattr(waiting, "CACHED_BYTES", 100)
    polls = PollCache()
    for seq in range(4):
        polls.keep(1, f"d{seq}", CachedPoll(seq, _answer(40)))
    assert [polls.find(1, f"d{seq}", 0) is not None for seq in range(4)] == [False, False, True, True]
    polls.keep(1, "d2", CachedPoll(2, _answer(10)))  # the same device again, with less
    polls.keep(1, "d5", CachedPoll(5, _answer(40)))
    assert [polls.find(1, f"d{seq}", 0) is not None for seq in (2, 3, 5)] == [True, True, True]
    polls.keep(1, "d6", CachedPoll(6, _answer(101)))  # more than all of them may have
    assert not any(polls.find(1, f"d{seq}", 0) for seq in range(7))
    polls.keep(1, "d7", CachedPoll(7, _answer(100)))
    assert polls.find(1, "d7", 0) is not None
    polls.clear()
    polls.keep(1, "d8", CachedPoll(8, _answer(100)))
    assert polls.find(1, "d8", 0) is not None


def test_of_an_email_of_any_length_as_little_is_kept_as_of_a_short_one():
    attempts = Attempts()
    for n in range(3):
        attempts.begin(f"{n}" * 200_000 + "\ud800", "10.0.0.1", 0)
    assert max(len(key) for key in attempts._windows) < 100
    assert len(attempts._windows) == 4


def test_of_a_long_device_id_nothing_is_kept():
    before = sensor_data._known_segment.cache_info().currsize
    long = "ä/" * 100_000
    assert sensor_data._segment(long) == paths.segment(long)
    assert sensor_data._known_segment.cache_info().currsize == before
    assert sensor_data._segment("a/b") == paths.segment("a/b")
