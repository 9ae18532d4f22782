"""What the outbox promises, on the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent.core.outbox import Bounds
from agent.core.values import Priority, Reading, SendOutcome
from agent.store.outbox import Outbox
from tests.support.factories import make_reading
from tests.support.fakes import FakeClock
from tests.support.stores import reopening

BOUNDS = Bounds(max_rows=5, max_age_s=3600.0)
Reopen = Callable[[], Outbox]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def reopen(tmp_path, clock) -> Iterator[Reopen]:
    """Gives the outbox; each call closes it and opens it again, as a restart does."""
    with reopening(tmp_path / "agent.db", clock=clock, bounds=BOUNDS) as reopen_store:
        yield lambda: reopen_store().outbox


@pytest.fixture
def outbox(reopen) -> Outbox:
    return reopen()


def put(outbox: Outbox, clock: FakeClock, *numbers: float) -> None:
    for number in numbers:
        outbox.put(make_reading({"n": number}, clock.now()), wait=True)


def values(outbox: Outbox, limit: int = 100) -> list[float]:
    """What waits, without what the outbox itself has to tell."""
    batch = outbox.next_batch(limit)
    return [stored.reading.values["n"] for stored in batch if stored.reading.priority is not Priority.GAP]


def gap_records(outbox: Outbox) -> list[Reading]:
    batch = outbox.next_batch(100)
    return [stored.reading for stored in batch if stored.reading.priority is Priority.GAP]


def deliver(outbox: Outbox, limit: int = 100) -> None:
    outbox.settle(SendOutcome(delivered=tuple(stored.key for stored in outbox.next_batch(limit))))


def test_a_reading_comes_back_as_it_was_after_a_restart(outbox, reopen, clock):
    reading = make_reading({"temperature": 21.5, "ü": -1e-9, "count": 2**53}, clock.now())
    outbox.put(reading, wait=True)
    (stored,) = reopen().next_batch(10)
    assert stored.reading == reading


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


def test_what_was_delivered_is_gone_and_what_was_not_stays(outbox, reopen, clock):
    put(outbox, clock, 1, 2, 3)
    first, second, _ = outbox.next_batch(10)
    outbox.settle(SendOutcome(delivered=(first.key, second.key)))
    assert values(outbox) == [3]
    assert values(reopen()) == [3]


def test_what_was_refused_is_kept_apart_and_not_offered_again(outbox, reopen, clock):
    put(outbox, clock, 1, 2)
    first, second = outbox.next_batch(10)
    outbox.settle(SendOutcome(delivered=(second.key,), refused={first.key: "validation_error: no"}))
    assert values(outbox) == []
    stats = reopen().stats()
    assert (stats.rows, stats.refused, stats.delivered, stats.accepted) == (0, 1, 1, 2)


def test_settling_twice_or_what_is_unknown_changes_nothing(outbox, clock):
    put(outbox, clock, 1, 2)
    first, _ = outbox.next_batch(10)
    for _ in range(2):
        outbox.settle(SendOutcome(delivered=(first.key, 99), refused={98: "no"}))
    assert values(outbox) == [2]
    assert (outbox.stats().delivered, outbox.stats().refused) == (1, 0)


def test_beyond_the_bound_the_oldest_go_and_are_counted(outbox, clock):
    put(outbox, clock, *range(8))
    assert values(outbox) == [3, 4, 5, 6, 7]
    stats = outbox.stats()
    assert (stats.rows, stats.dropped, stats.accepted, stats.delivered) == (5, 3, 8, 0)


def test_a_number_that_is_not_finite_is_refused_before_anything_is_stored(outbox, clock):
    with pytest.raises(ValueError, match="JSON"):
        outbox.put(make_reading({"n": float("nan")}), wait=True)
    assert outbox.stats().accepted == 0


# --- priorities ---------------------------------------------------------------------------------------------------


def put_as(outbox: Outbox, clock: FakeClock, priority: Priority, *numbers: float) -> None:
    for number in numbers:
        outbox.put(Reading({"n": number}, clock.now(), priority), wait=True)


def test_the_backlog_goes_by_priority_and_the_oldest_first_in_each_but_live_ones_before_all(outbox, reopen, clock):
    put_as(outbox, clock, Priority.LOW, 1)
    put_as(outbox, clock, Priority.NORMAL, 2)
    put_as(outbox, clock, Priority.HIGH, 3)
    put_as(outbox, clock, Priority.NORMAL, 4)
    clock.advance(1000.0)
    put_as(outbox, clock, Priority.LOW, 5)
    assert values(outbox) == [5, 3, 2, 4, 1]
    assert values(reopen(), 3) == [5, 3, 2]


def test_at_a_bound_the_lowest_priority_gives_way_first_and_the_oldest_first_in_it(outbox, clock):
    put_as(outbox, clock, Priority.HIGH, 1)
    put_as(outbox, clock, Priority.LOW, 2, 3)
    put_as(outbox, clock, Priority.NORMAL, 4, 5, 6, 7)
    put_as(outbox, clock, Priority.LOW, 8)
    assert values(outbox) == [1, 4, 5, 6, 7]
    put_as(outbox, clock, Priority.HIGH, 9)
    assert values(outbox) == [1, 5, 6, 7, 9]


# --- once more ----------------------------------------------------------------------------------------------------


def test_a_batch_can_be_had_again_as_it_was_though_others_would_go_first_by_now(outbox, clock):
    put(outbox, clock, 1, 2)
    first = outbox.next_batch(10)
    clock.advance(1000.0)
    put(outbox, clock, 3)
    again = outbox.again([stored.key for stored in first])
    assert [(stored.key, stored.idempotency_key) for stored in again] == [
        (stored.key, stored.idempotency_key) for stored in first
    ]
    outbox.settle(SendOutcome(delivered=(first[0].key,)))
    assert [stored.key for stored in outbox.again([stored.key for stored in first])] == [first[1].key]


def test_what_was_handed_out_last_does_not_give_way_at_a_bound(outbox, clock):
    put(outbox, clock, 1, 2, 3, 4, 5)
    assert values(outbox, 2) == [1, 2]
    put(outbox, clock, 6, 7)
    assert values(outbox) == [1, 2, 5, 6, 7]


def test_a_batch_that_is_all_there_is_gives_way_to_new_readings(outbox, clock):
    put(outbox, clock, 1, 2, 3, 4, 5)
    assert values(outbox) == [1, 2, 3, 4, 5]
    put(outbox, clock, 6)
    assert values(outbox) == [2, 3, 4, 5, 6]


# --- gaps ---------------------------------------------------------------------------------------------------------


def test_what_was_dropped_is_told_once_when_there_is_room_again_and_the_record_survives_a_restart(
    outbox, reopen, clock
):
    for number in range(8):
        put(outbox, clock, number)
        clock.advance(10.0)
    assert gap_records(outbox) == []
    deliver(outbox, 2)
    outbox = reopen()
    (gap,) = gap_records(outbox)
    assert gap.values == {"agent_gap_rows": 3, "agent_gap_seconds": 20.0, "agent_gap_reason": 2}
    assert gap.at.monotonic_s == 1020.0
    deliver(outbox)
    assert outbox.next_batch(10) == []
    put(reopen(), clock, 9)
    assert gap_records(reopen()) == []


def test_a_gap_that_goes_on_is_told_every_hour(outbox, clock):
    for number in range(5 + 70):
        put(outbox, clock, number)
        clock.advance(60.0)
    assert [gap.values["agent_gap_rows"] for gap in gap_records(outbox)] == [61]


def test_a_gap_record_gives_way_to_nothing(outbox, clock):
    put(outbox, clock, *range(8))
    deliver(outbox, 2)
    put(outbox, clock, *range(10, 30))
    assert len(gap_records(outbox)) == 1
    assert values(outbox) == [25, 26, 27, 28, 29]


def test_readings_that_became_too_old_are_told_with_that_reason(outbox, clock):
    put(outbox, clock, 1, 2)
    clock.advance(BOUNDS.max_age_s + 1)
    put(outbox, clock, 3)
    (gap,) = gap_records(outbox)
    assert gap.values == {"agent_gap_rows": 2, "agent_gap_seconds": 0.0, "agent_gap_reason": 1}
