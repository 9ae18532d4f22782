"""What is sent next of a backlog; the port's tests have the rest of an outbox."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.outbox import (
    LIVE_SCAN_MAX,
    StoredItem,
    choose_next,
)
from tests.support.factories import make_moment

NOW = make_moment(100_000.0)


def held(key: int, age: float = 0.0, size: int = 100, **clock) -> StoredItem:
    return StoredItem(key, size, make_moment(NOW.monotonic_s - age, **clock))


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
