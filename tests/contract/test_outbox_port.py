"""The outbox's contract, on the fake, on SQLite in one thread, and on SQLite behind its writer thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store_service import StoreService
from agent.core.outbox import Bounds
from agent.core.values import SendOutcome
from agent.ports import Outbox
from tests.factories import make_moment, make_reading
from tests.fakes import FakeClock, FakeOutbox

BOUNDS = Bounds(max_rows=5, max_bytes=100_000, max_age_s=3600.0)
Reopen = Callable[[], Outbox]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["fake", "sqlite", "service", "lazy service"])
def reopen(request, tmp_path, clock) -> Iterator[Reopen]:
    """Gives the outbox; each call closes it and opens it again, as a restart does."""
    opened: list[Any] = []

    def close() -> None:
        if opened:
            last = opened.pop()
            last.stop(10.0) if isinstance(last, StoreService) else last.close()

    def open_again() -> Outbox:
        if request.param == "fake":
            return fake
        close()
        path = tmp_path / "agent.db"
        if request.param == "sqlite":
            opened.append(SqliteStore(path, clock=clock, bounds=BOUNDS))
            return opened[0]
        opened.append(StoreService(path, clock=clock, bounds=BOUNDS, lazy_settle=request.param == "lazy service"))
        opened[0].start()
        return opened[0].outbox

    fake = FakeOutbox(clock, BOUNDS)
    yield open_again
    close()


@pytest.fixture
def outbox(reopen) -> Outbox:
    return reopen()


def put(outbox: Outbox, clock: FakeClock, *numbers: float) -> None:
    for number in numbers:
        outbox.put(make_reading({"n": number}, clock.now()), wait=True)


def values(outbox: Outbox, limit: int = 100) -> list[float]:
    return [stored.reading.values["n"] for stored in outbox.next_batch(limit)]


def test_a_reading_comes_back_as_it_was_after_a_restart(outbox, reopen, clock):
    reading = make_reading({"temperature": 21.5, "ü": -1e-9, "count": 2**53}, clock.now())
    outbox.put(reading, wait=True)
    (stored,) = reopen().next_batch(10)
    assert stored.reading == reading


def test_live_readings_go_first_and_each_part_oldest_first(outbox, clock):
    put(outbox, clock, 1, 2)
    clock.advance(1000.0)
    put(outbox, clock, 3, 4)
    assert values(outbox) == [3, 4, 1, 2]
    assert values(outbox, 3) == [3, 4, 1]
    assert values(outbox, 1) == [3]


def test_keys_ascend_and_are_never_given_twice_though_everything_was_delivered(outbox, reopen, clock):
    seen: list[tuple[int, str]] = []
    for number in range(4):
        put(outbox, clock, number)
        (stored,) = outbox.next_batch(10)
        seen.append((stored.key, stored.idempotency_key))
        outbox.settle(SendOutcome(delivered=(stored.key,)))
        outbox = reopen()
    keys = [key for key, _ in seen]
    assert keys == sorted(set(keys))
    assert len({name for _, name in seen}) == 4


def test_an_idempotency_key_stays_the_same_over_resends_and_restarts(outbox, reopen, clock):
    put(outbox, clock, 1, 2)
    first = {stored.key: stored.idempotency_key for stored in outbox.next_batch(10)}
    again = {stored.key: stored.idempotency_key for stored in outbox.next_batch(10)}
    assert {stored.key: stored.idempotency_key for stored in reopen().next_batch(10)} == again == first


def test_tries_are_counted(outbox, clock):
    put(outbox, clock, 1)
    assert [outbox.next_batch(1)[0].attempts for _ in range(3)] == [0, 1, 2]


def test_what_was_delivered_is_gone_and_what_was_not_stays(outbox, reopen, clock):
    put(outbox, clock, 1, 2, 3)
    first, second, _ = outbox.next_batch(10)
    outbox.settle(SendOutcome(delivered=(first.key, second.key)))
    assert values(outbox) == [3]
    assert values(reopen()) == [3]


def test_what_was_refused_is_set_aside_and_not_offered_again(outbox, reopen, clock):
    put(outbox, clock, 1, 2)
    first, second = outbox.next_batch(10)
    outbox.settle(SendOutcome(delivered=(second.key,), refused={first.key: "validation_error: no"}))
    assert values(outbox) == []
    stats = reopen().stats()
    assert (stats.rows, stats.set_aside, stats.delivered, stats.accepted) == (0, 1, 1, 2)


def test_settling_twice_or_what_is_unknown_changes_nothing(outbox, clock):
    put(outbox, clock, 1, 2)
    first, _ = outbox.next_batch(10)
    for _ in range(2):
        outbox.settle(SendOutcome(delivered=(first.key, 99), refused={98: "no"}))
    assert values(outbox) == [2]
    assert (outbox.stats().delivered, outbox.stats().set_aside) == (1, 0)


def test_beyond_the_bound_the_oldest_go_and_are_counted(outbox, clock):
    put(outbox, clock, *range(8))
    assert values(outbox) == [3, 4, 5, 6, 7]
    stats = outbox.stats()
    assert (stats.rows, stats.dropped, stats.accepted, stats.delivered) == (5, 3, 8, 0)


def test_readings_older_than_the_bound_go_when_the_next_one_comes(outbox, clock):
    put(outbox, clock, 1)
    clock.advance(BOUNDS.max_age_s + 1)
    put(outbox, clock, 2)
    assert values(outbox) == [2]
    assert outbox.stats().dropped == 1


def test_the_stats_count_what_waits(outbox, clock):
    assert outbox.stats().oldest_wall_s is None
    oldest = clock.now()
    put(outbox, clock, 1, 22)
    stats = outbox.stats()
    assert (stats.rows, stats.size_bytes, stats.oldest_wall_s) == (2, len('{"n":1}{"n":22}'), oldest.wall_s)
    outbox.settle(SendOutcome(delivered=tuple(stored.key for stored in outbox.next_batch(9))))
    assert (outbox.stats().rows, outbox.stats().size_bytes, outbox.stats().delivered) == (0, 0, 2)


def test_a_number_that_is_not_finite_is_refused_before_anything_is_stored(outbox, clock):
    with pytest.raises(ValueError, match="JSON"):
        outbox.put(make_reading({"n": float("nan")}), wait=True)
    assert outbox.stats().accepted == 0


def test_readings_of_several_boots_wait_side_by_side(outbox, reopen, clock):
    put(outbox, clock, 1)
    clock.reboot("boot-2")
    outbox = reopen()
    outbox.put(make_reading({"n": 2}, replace(make_moment(10.0), boot_id="boot-2")), wait=True)
    boots = {stored.reading.values["n"]: stored.reading.at.boot_id for stored in outbox.next_batch(10)}
    assert boots == {1: "boot-1", 2: "boot-2"}
