from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.outbox import (
    LIVE_SCAN_MAX,
    ROW_BYTES,
    Bounds,
    DropReason,
    StoredItem,
    choose_next,
    evict,
    is_refused_for_good,
    kept_together,
    too_old,
)
from agent.core.timekeeping import age_s
from agent.errors import (
    AgentError,
    Conflict,
    InvalidMessage,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    StorageError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from tests.factories import make_moment

NOW = make_moment(100_000.0)
NEVER_SET = 100.0


def held(key: int, age: float = 0.0, size: int = 100, **clock) -> StoredItem:
    return StoredItem(key, size, make_moment(NOW.monotonic_s - age, **clock))


def evicted(rows: list[StoredItem], bounds: Bounds, now=NOW) -> list[tuple[int, str]]:
    """What goes of the readings of one priority: first for their age, then for the other bounds."""
    old, _ = too_old(iter(rows), bounds.max_age_s, now, len(rows))
    left = [each for each in rows if each not in old]
    used_bytes = sum(each.size_bytes + ROW_BYTES for each in left)
    too_many, too_large = len(left) - bounds.max_rows, used_bytes - bounds.max_bytes
    gone = [(each, "age") for each in old] + evict([iter(left)], too_many, too_large, len(left))
    return [(each.key, str(reason)) for each, reason in gone]


# --- age ----------------------------------------------------------------------------------------------------------


def test_across_boots_the_wall_clock_counts_if_it_was_set_both_times():
    earlier = make_moment(5.0, wall_s=NOW.wall_s - 50.0, boot_id="boot-0")
    assert age_s(earlier, NOW) == 50.0
    assert age_s(make_moment(5.0, wall_s=NEVER_SET, boot_id="boot-0"), NOW) is None
    assert age_s(earlier, make_moment(7.0, wall_s=NEVER_SET)) is None


# --- what to send next --------------------------------------------------------------------------------------------


def choose(rows: list[StoredItem], limit: int) -> tuple[int, ...]:
    return choose_next([iter(rows)], iter(rows[::-1]), NOW, limit)


def test_a_backlog_of_a_million_rows_is_not_read():
    read: list[int] = []

    def endless(step: int):
        key = 500_000
        while True:
            key += step
            read.append(key)
            yield StoredItem(key, 10, make_moment(0.0 if step > 0 else NOW.monotonic_s))

    assert len(choose_next([endless(1)], endless(-1), NOW, 50)) == 50
    assert len(read) <= 50 + LIVE_SCAN_MAX


@given(st.lists(st.floats(0, 200), max_size=30), st.integers(0, 40))
def test_every_key_goes_at_most_once_and_live_ones_are_never_behind_backlog(ages, limit):
    rows = [held(key, age) for key, age in enumerate(sorted(ages, reverse=True))]
    keys = choose(rows, limit)
    assert len(set(keys)) == len(keys) == min(limit, len(rows))
    live = [key for key in keys if rows[key].at.monotonic_s >= NOW.monotonic_s - 60]
    assert list(keys) == [*sorted(live), *sorted(set(keys) - set(live))]


RANKED = st.lists(st.tuples(st.floats(0, 200), st.integers(0, 3)), max_size=30)


def ranked(rows: list[tuple[float, int]]) -> list[list[StoredItem]]:
    """Rows of these ages and priorities, by priority; keys follow the order of acceptance."""
    ordered = [(held(key, age), rank) for key, (age, rank) in enumerate(sorted(rows, reverse=True))]
    return [[each for each, own in ordered if own == rank] for rank in range(4)]


@given(RANKED, st.integers(0, 40))
def test_live_goes_before_backlog_and_the_backlog_by_priority_and_age(rows, limit):
    queues = ranked(rows)
    everything = sorted((each for queue in queues for each in queue), key=lambda each: each.key)
    keys = choose_next(map(iter, queues), iter(everything[::-1]), NOW, limit)
    live = [each.key for each in everything if NOW.monotonic_s - each.at.monotonic_s <= 60]
    backlog = [each.key for queue in queues for each in queue if each.key not in live]
    assert list(keys) == [*live, *backlog][:limit]


# --- bounds -------------------------------------------------------------------------------------------------------


def test_a_batch_in_flight_is_kept_together_unless_it_is_most_of_what_waits():
    assert kept_together(frozenset({1, 2}), 4) == {1, 2}
    assert kept_together(frozenset({1, 2, 3}), 5) == frozenset()


def test_a_reading_whose_age_nobody_knows_stays_unless_a_later_one_is_too_old():
    unknown = held(1, wall_s=NEVER_SET, boot_id="boot-0")
    assert evicted([unknown, held(2, 59)], Bounds(10, 10_000, 60)) == []
    assert evicted([unknown, held(2, 61), held(3)], Bounds(10, 10_000, 60)) == [(1, "age"), (2, "age")]


def test_a_clock_that_jumps_from_1970_to_today_drops_nothing():
    before = make_moment(5.0, wall_s=5.0, boot_id="boot-0")
    rows = [StoredItem(1, 10, before), StoredItem(2, 10, before)]
    assert evicted(rows, Bounds(10, 10_000, 60), now=make_moment(1.0, boot_id="boot-1")) == []


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50)), max_size=30),
    st.integers(0, 10),
    st.integers(0, 2000),
    st.floats(1, 99),
)
def test_after_eviction_everything_is_within_the_bounds_and_only_a_prefix_went(rows, max_rows, max_bytes, max_age_s):
    ages = sorted((age for age, _ in rows), reverse=True)
    kept = [held(key, age, size) for key, (age, (_, size)) in enumerate(zip(ages, rows, strict=True))]
    bounds = Bounds(max_rows, max_bytes, max_age_s)
    gone = evicted(kept, bounds)
    assert [key for key, _ in gone] == list(range(len(gone)))
    left = kept[len(gone) :]
    assert len(left) <= max_rows
    assert sum(each.size_bytes + ROW_BYTES for each in left) <= max_bytes
    assert all(NOW.monotonic_s - each.at.monotonic_s <= max_age_s for each in left)
    if gone:
        reasons = {reason for _, reason in gone}
        assert reasons <= {str(reason) for reason in DropReason}
        # One less would not have been enough.
        assert evicted(kept[len(gone) - 1 :], bounds) != []


# --- what an error means ------------------------------------------------------------------------------------------


REFUSED = [Refused(400), Refused(413), Refused(422), InvalidMessage("NaN"), AgentError("?")]
NOT_THEIR_FAULT = [
    Refused(405),
    NotFound(404),
    Conflict(409),
    Unauthorized(401),
    RateLimited(429),
    ServerFault(500),
    TransportError("reset"),
    UnexpectedAnswer("html"),
    StorageError("full"),
]


def test_only_what_is_wrong_with_its_content_is_refused_for_good():
    assert all(map(is_refused_for_good, REFUSED))
    assert not any(map(is_refused_for_good, NOT_THEIR_FAULT))
