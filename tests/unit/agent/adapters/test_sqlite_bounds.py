"""What the store takes on the disk, and what gives way when that is too much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.outbox_rows import encode_reading
from agent.core.outbox import Bounds, WhenFull
from agent.core.values import Priority, Reading, SendOutcome, StoredReading
from tests.factories import make_entry, make_reading
from tests.fakes import FakeClock

KIB = 1024
MIB = 1024**2
VALUES = {f"reading_{n}": n / 7 for n in range(10)}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opened() -> Iterator[list[SqliteStore]]:
    stores: list[SqliteStore] = []
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def open_store(path, clock, opened):
    def open_it(**options) -> SqliteStore:
        store = SqliteStore(path, clock=clock, **options)
        opened.append(store)
        return store

    return open_it


def put(store: SqliteStore, clock: FakeClock, first: int, count: int, priority: Priority = Priority.NORMAL) -> int:
    """One reading a second in one commit; how many were refused."""
    drafts = []
    for number in range(first, first + count):
        drafts.append(encode_reading(Reading({**VALUES, "n": number}, clock.now(), priority)))
        clock.advance(1.0)
    return store.outbox.accept(drafts)


def waiting(store: SqliteStore, limit: int = 1_000_000) -> list[StoredReading]:
    return store.outbox.next_batch(limit)


def numbers(store: SqliteStore) -> list[int]:
    found = [each.reading for each in waiting(store)]
    return sorted(int(each.values["n"]) for each in found if each.priority is not Priority.GAP)


def gap_rows(store: SqliteStore) -> int:
    return sum(int(each.reading.values.get("agent_gap_rows", 0)) for each in waiting(store))


def on_disk(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir())


# --- bytes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when_full", WhenFull)
@pytest.mark.parametrize("at_once", [20, 100])
def test_file_and_log_never_take_more_than_the_bound(path, clock, open_store, when_full, at_once):
    store = open_store(bounds=Bounds(max_bytes=MIB, when_full=when_full))
    most = 0
    for first in range(0, 6000, at_once):
        put(store, clock, first, at_once)
        most = max(most, on_disk(path))
    assert MIB / 2 < most <= MIB
    stats = store.outbox.stats()
    assert stats.dropped > 0
    assert stats.rows > 1000
    assert stats.accepted == stats.rows + stats.dropped


def test_pages_that_became_free_are_used_again_before_the_file_grows(path, clock, open_store):
    store = open_store(bounds=Bounds(max_bytes=4 * MIB))
    put(store, clock, 0, 2000)
    sizes = []
    for first in range(2000, 40_000, 500):
        store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in waiting(store, 500))))
        put(store, clock, first, 500)
        sizes.append(path.stat().st_size)
    assert sizes[-1] <= 1.01 * sizes[len(sizes) // 2]
    assert store.outbox.stats().dropped == 0


def test_readings_make_room_for_commands(path, clock, open_store):
    store = open_store(bounds=Bounds(max_bytes=MIB))
    put(store, clock, 0, 200)
    for first in range(0, 400, 20):
        store.journal.admit([make_entry(f"c{n}", handler="h" * 1000) for n in range(first, first + 20)])
    before = store.outbox.stats().rows
    for first in range(200, 2200, 100):
        put(store, clock, first, 100)
    assert on_disk(path) <= MIB
    assert store.outbox.stats().rows >= before
    assert store.outbox.stats().dropped > 0
    assert len(store.journal.known([f"c{n}" for n in range(400)])) == 400


def test_a_bound_that_was_lowered_is_reached_in_steps(path, clock, open_store, opened):
    store = open_store()
    put(store, clock, 0, 9000)
    store.close()
    opened.clear()
    store = open_store(bounds=Bounds(max_rows=100))
    put(store, clock, 9000, 1)
    assert 5000 < store.outbox.stats().rows < 9000
    for number in range(9001, 9010):
        put(store, clock, number, 1)
    assert numbers(store) == list(range(8910, 9010))


# --- free disk ----------------------------------------------------------------------------------------------------


def test_while_others_need_the_disk_the_file_does_not_grow_and_the_newest_readings_are_kept(path, clock, open_store):
    free = [100 * MIB]
    store = open_store(bounds=Bounds(keep_free_bytes=50 * MIB), free_bytes=lambda: free[0])
    put(store, clock, 0, 3000)
    free[0] = 49 * MIB
    put(store, clock, 3000, 100)
    store.write_back()
    size = path.stat().st_size
    for first in range(3100, 9000, 100):
        put(store, clock, first, 100)
    store.write_back()
    assert path.stat().st_size <= size + 64 * 1024
    kept = numbers(store)
    assert kept == list(range(kept[0], 9000))
    assert len(kept) > 2500
    status = store.status()
    assert {gap.reason for gap in status.gaps} == {"free_disk"}
    free[0] = 100 * MIB
    put(store, clock, 9000, 3000)
    assert len(numbers(store)) > len(kept) + 2900
    assert gap_rows(store) == store.outbox.stats().dropped


def test_a_file_system_that_does_not_tell_its_room_is_no_bound(clock, open_store):
    store = open_store(bounds=Bounds(keep_free_bytes=50 * MIB), free_bytes=lambda: None)
    put(store, clock, 0, 3000)
    assert store.outbox.stats().dropped == 0


# --- policies -----------------------------------------------------------------------------------------------------


def test_blocking_keeps_the_old_refuses_the_rest_of_a_commit_and_goes_on_when_there_is_room(clock, open_store):
    store = open_store(bounds=Bounds(max_rows=100, when_full=WhenFull.BLOCK))
    assert put(store, clock, 0, 130) == 30
    assert put(store, clock, 130, 10) == 10
    assert numbers(store) == list(range(100))
    clock.advance(100.0)
    store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in waiting(store, 50))))
    assert gap_rows(store) == 40
    assert put(store, clock, 140, 10) == 0
    assert numbers(store) == [*range(50, 100), *range(140, 150)]


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "send", "lose", "wait"]), st.integers(1, 60), st.sampled_from(list(Priority)[1:])
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(ACTS, st.sampled_from(WhenFull), st.integers(1, 80))
def test_every_reading_is_delivered_waiting_or_told_in_a_gap_whatever_happens(tmp_path_factory, acts, when_full, rows):
    clock = FakeClock()
    bounds = Bounds(max_rows=rows, max_age_s=2000.0, when_full=when_full)
    path = tmp_path_factory.mktemp("outbox") / "agent.db"
    put_count, delivered, told = 0, set(), 0
    with closing(SqliteStore(path, clock=clock, bounds=bounds)) as store:

        def send(limit: int) -> int:
            batch = store.outbox.next_batch(limit)
            store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in batch)))
            for each in batch:
                assert each.idempotency_key not in delivered
                delivered.add(each.idempotency_key)
            return sum(int(each.reading.values.get("agent_gap_rows", 0)) for each in batch)

        for act, count, priority in acts:
            if act == "put":
                put(store, clock, put_count, count, priority)
                put_count += count
            elif act == "send":
                told += send(count)
            elif act == "lose":
                store.outbox.next_batch(count)
            else:
                clock.advance(count * 30.0)
            assert store.outbox.stats().rows <= max(rows, 2 * 60) + 20
        dropped_before = store.outbox.stats().dropped
        while store.outbox.stats().rows:
            told += send(1000)
        # The last drop and the last record may have passed each other: one more reading closes what is open.
        put(store, clock, put_count, 1)
        told += send(1000)
        stats = store.outbox.stats()
    assert stats.dropped == dropped_before == told
    assert stats.accepted == stats.delivered + stats.dropped
    assert len(delivered) == stats.delivered


def test_a_batch_of_any_size_is_read_and_deleted_with_as_many_statements(open_store):
    counts = []
    for size in (3, 300):
        with closing(open_store()) as store:
            with store.transaction():
                for n in range(size):
                    store.outbox.put(make_reading({"n": n}))
            statements: list[str] = []
            store._db.set_trace_callback(statements.append)
            batch = store.outbox.next_batch(size)
            assert [each.reading.values["n"] for each in batch] == list(range(size))
            store.outbox.hide([each.key for each in batch])
            store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in batch)))
            store._db.set_trace_callback(None)
            assert store.outbox.stats().rows == 0
            counts.append(len(statements))
    assert counts[0] == counts[1] < 20


# --- older files --------------------------------------------------------------------------------------------------
