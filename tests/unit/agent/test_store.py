"""The store over its file: groups of commits, bounds, damage, a full or failing disk, boots without a time."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.commands import HISTORY_LOST, IllegalMove
from agent.core.outbox import Bounds
from agent.core.timekeeping import BootTime
from agent.core.values import CommandState, Priority, Reading, SendOutcome, StoredReading
from agent.errors import ConfigurationError, StorageError
from agent.store.sqlite import PAGE_BYTES, VERSION, damaged_copies
from agent.store.status import read_store_status
from agent.store.store import REPLACED, Store
from tests.support.factories import make_entry, make_moment, make_reading
from tests.support.fakes import START_WALL_S, FakeClock
from tests.support.stores import reopening

MIB = 1024**2
NEVER_S = 1e9
VALUES = {f"reading_{n}": n / 7 for n in range(10)}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def start(path, clock) -> Iterator:
    with reopening(path, clock=clock, group_window_s=NEVER_S) as reopen:

        def start_store(*, max_pages: int | None = None, **options) -> Store:
            store = reopen(**options)
            if max_pages is not None:  # the disk is full beyond them
                limit = f"PRAGMA max_page_count = {max_pages}"
                store.call(lambda: store.connection().execute(limit).fetchone(), writes=False)
            return store

        yield start_store


def note_replaced(told: list[str]) -> Callable[[str, str], None]:
    """Note the sentence of each replacement of a damaged file."""
    return lambda state, text: told.append(text) if state == REPLACED else None


def on_disk(path: Path) -> Path:
    """A copy of file and log as they are: what a power cut would leave."""
    folder = Path(tempfile.mkdtemp(dir=path.parent))
    for ending in ("", "-wal"):
        part = path.with_name(path.name + ending)
        if part.exists():
            shutil.copy(part, folder)
    return folder / path.name


def rows_on_disk(path: Path) -> int:
    status = read_store_status(on_disk(path))
    assert status is not None
    return status.outbox.rows


def numbers(store: Store) -> list[int]:
    batch = store.outbox.next_batch(1_000_000)
    return [int(each.reading.values["n"]) for each in batch if each.reading.priority is not Priority.GAP]


def gaps(batch: list[StoredReading]) -> list[Reading]:
    return [each.reading for each in batch if each.reading.priority is Priority.GAP]


def put(store: Store, clock: FakeClock, first: int, count: int, priority: Priority = Priority.NORMAL) -> None:
    """One reading a second, in one commit."""
    for number in range(first, first + count):
        store.outbox.put(Reading({**VALUES, "n": number}, clock.now(), priority))
        clock.advance(1.0)
    store.journal.put_setting("commit", "1")


def deliver(store: Store, limit: int) -> None:
    store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in store.outbox.next_batch(limit))))


def fill_disk(store: Store) -> None:
    with pytest.raises(StorageError, match="no room left for it: free space on its disk"):
        store.journal.put_setting("big", "x" * 100_000)


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_reading_waits_for_company_and_goes_with_the_next_commit(start, path):
    store = start()
    for _ in range(2):
        store.outbox.put(make_reading())
    assert store.outbox.next_batch(10) == []
    assert rows_on_disk(path) == 0
    store.journal.put_setting("a", "1")
    assert rows_on_disk(path) == 2


def test_a_reading_that_waits_too_long_goes_alone_and_a_stop_commits_what_waits(start, path):
    store = start(group_window_s=0.0)
    told = threading.Event()
    store.on_readings = lambda _is_urgent: told.set()
    store.outbox.put(make_reading())
    assert told.wait(60)
    assert rows_on_disk(path) == 1
    store = start()
    store.outbox.put(make_reading())
    assert store.stop(60)
    assert rows_on_disk(path) == 2


def test_an_urgent_reading_does_not_wait_and_takes_the_others_along(start, path, clock):
    store = start()
    told: list[bool] = []
    committed = threading.Event()
    store.on_readings = lambda is_urgent: told.append(is_urgent) or committed.set()
    store.outbox.put(make_reading())
    store.outbox.put(Reading({"n": 1}, clock.now(), Priority.HIGH))
    assert committed.wait(60)
    assert (rows_on_disk(path), told) == (2, [True])


def test_a_day_of_five_sensors_at_ten_seconds_wears_the_flash_by_less_than_25_mb(start, clock):
    """As readings, kept for half a minute, sent and deleted; what the process hands to the kernel."""
    store = start()

    def written_bytes() -> int:
        (line,) = [line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("wchar")]
        return int(line.split()[1])

    def half_a_minute() -> None:
        for _ in range(3):
            values = {f"sensor_{number}_celsius": 20.0 + number / 7 for number in range(5)}
            store.outbox.put(Reading(values, clock.now()))
            clock.advance(10.0)
        store.call(lambda: None, writes=True)  # the window is over
        deliver(store, 500)

    half_a_minute()
    before, rounds = written_bytes(), 500
    for _ in range(rounds):
        half_a_minute()
    assert (written_bytes() - before) / rounds * 2880 < 25e6


def test_a_fast_producer_waits_for_a_healthy_disk_and_nothing_is_dropped(start, monkeypatch):
    monkeypatch.setattr("agent.store.store.BUFFER_MAX", 4)
    monkeypatch.setattr("agent.store.store._FLUSH_AT", 2)
    store = start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.outbox.put(make_reading({"n": n})), range(400)))
    store.journal.put_setting("flush", "1")
    stats = store.outbox.stats()
    assert (stats.accepted, stats.dropped) == (400, 0)


def test_what_cannot_be_stored_in_a_group_fails_alone(start):
    store = start()
    store.journal.admit([make_entry("a")])
    gate = threading.Event()
    # The store's thread is held while the requests gather, so they share one transaction.
    with ThreadPoolExecutor(5) as pool:
        held = pool.submit(store.call, lambda: gate.wait(60), writes=False)
        good = pool.submit(store.journal.start, "a", make_moment())
        bad = pool.submit(store.journal.reported, ["unknown"])
        worse = pool.submit(store.journal.put_setting, "lone surrogate", "\ud800")
        other = pool.submit(store.journal.put_setting, "s", "1")
        gate.set()
        for each in (held, good, other):
            each.result(60)
        with pytest.raises(IllegalMove):
            bad.result(60)
        with pytest.raises(StorageError, match="cannot be stored"):
            worse.result(60)
    assert store.journal.known(["a"])["a"].state == CommandState.STARTED
    assert store.journal.setting("s") == "1"


def test_a_turn_that_does_not_end_is_stuck(start, monkeypatch):
    store = start()
    inside, gate = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        gate.wait(60)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(store.call, hang, writes=False)
        inside.wait(60)
        assert store.stuck_for_s() == 0.0
        monkeypatch.setattr("agent.store.store._MAX_TURN_S", 0.0)
        assert store.stuck_for_s() > 0.0
        gate.set()
        held.result(60)


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [20, 100])
def test_file_and_log_never_take_more_than_the_bound(path, clock, start, at_once):
    store = start(bounds=Bounds(max_bytes=MIB))
    most = 0
    for first in range(0, 6000, at_once):
        put(store, clock, first, at_once)
        most = max(most, sum(each.stat().st_size for each in path.parent.glob("agent.db*")))
    assert MIB / 2 < most <= MIB
    stats = store.outbox.stats()
    assert stats.dropped > 0
    assert stats.rows > 1000
    assert stats.accepted == stats.rows + stats.dropped


def test_readings_make_room_for_commands(path, clock, start):
    store = start(bounds=Bounds(max_bytes=MIB))
    put(store, clock, 0, 200)
    for first in range(0, 400, 20):
        store.journal.admit([make_entry(f"c{n}", handler="h" * 1000) for n in range(first, first + 20)])
    before = store.outbox.stats().rows
    for first in range(200, 2200, 100):
        put(store, clock, first, 100)
    assert sum(each.stat().st_size for each in path.parent.glob("agent.db*")) <= MIB
    assert store.outbox.stats().rows >= before
    assert store.outbox.stats().dropped > 0
    assert len(store.journal.known([f"c{n}" for n in range(400)])) == 400


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "send", "lose", "wait"]), st.integers(1, 60), st.sampled_from(list(Priority)[1:])
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(ACTS, st.integers(1, 80))
def test_every_reading_is_delivered_waiting_or_told_in_a_gap_whatever_happens(tmp_path_factory, acts, rows):
    clock = FakeClock()
    bounds = Bounds(max_rows=rows, max_age_s=2000.0)
    put_count, delivered, told = 0, set(), 0
    path = tmp_path_factory.mktemp("outbox") / "agent.db"
    with Store(path, clock=clock, bounds=bounds, group_window_s=NEVER_S) as store:

        def send(limit: int) -> int:
            batch = store.outbox.next_batch(limit)
            store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in batch)))
            for each in batch:
                assert each.idempotency_key not in delivered
                delivered.add(each.idempotency_key)
            return sum(int(each.values["agent_gap_rows"]) for each in gaps(batch))

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


# --- the file -------------------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_only_and_in_wal_mode(start, path):
    store = start()
    store.journal.put_setting("a", "1")
    modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    # No -shm: its pages would be written to the flash over and over.
    assert set(modes) == {"agent.db", "agent.db-wal", "agent.db.unsaved"}
    store.stop(60)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            f"PRAGMA user_version = {VERSION + 1}; PRAGMA application_id = 7",
            f"it has version {VERSION + 1} .* the device-agent that wrote it",
        ),
        (
            "PRAGMA user_version = 0; PRAGMA application_id = 7",
            "another program's database: give the agent a state_dir of its own",
        ),
    ],
)
def test_a_file_of_another_version_or_program_is_refused_and_left_as_it_is(path, clock, sql, words):
    with Store(path, clock=clock) as store:
        store.journal.put_setting("a", "1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(sql)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=words):
        Store(path, clock=clock).start()
    assert path.read_bytes() == before
    assert damaged_copies(path) == []


@pytest.mark.parametrize("field", ["user_version", "application_id"])
def test_a_flipped_bit_in_its_version_makes_no_other_programs_file_of_it(path, clock, field):
    with Store(path, clock=clock) as store:
        store.journal.put_setting("a", "1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA {field} = 257")
    for _ in range(2):
        with Store(path, clock=clock) as store:
            assert store.journal.setting("a") == "1"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_a_second_agent_is_kept_out_while_the_first_one_lives_and_may_start_later(path, clock):
    second = Store(path, clock=clock)
    with Store(path, clock=clock) as store:
        store.journal.put_setting("a", "1")
        with pytest.raises(StorageError, match="another device-agent uses it"):
            second.start()
    with second:
        assert second.journal.setting("a") == "1"


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"\0" * 5000, b"not a database at all, " * 300, b"SQLite format 3\0" + b"\xff" * 3000]
)
def test_a_file_that_is_no_database_is_moved_aside_whole_and_a_new_one_is_begun(path, start, content):
    path.write_bytes(content)
    told: list[str] = []
    store = start(on_state=note_replaced(told))
    assert len(told) == 1
    assert "was damaged" in told[0]
    assert store.journal.setting(HISTORY_LOST) == "1"
    assert store.journal.is_empty()
    store.journal.admit([make_entry("a")])
    assert store.journal.setting(HISTORY_LOST) is None
    (aside,) = damaged_copies(path)
    assert aside.read_bytes() == content
    assert store.status().incidents == (told[0],)


def test_a_replacement_that_was_cut_short_does_not_forget_that_there_was_a_history(path, start):
    """The power went after the damaged file was moved and before a new one was there."""
    path.with_name("agent.db.damaged-20260101T000000Z-1").write_bytes(b"rubbish")
    path.with_name("agent.db-wal").write_bytes(os.urandom(5000))
    store = start()
    assert store.journal.setting(HISTORY_LOST) == "1"
    assert store.status().commands == {}


@pytest.mark.parametrize(
    "flip",
    [
        "UPDATE command SET body = '{\"a\":' WHERE id = 'b'",
        "UPDATE command SET body = replace(body, 'received', 'recejved') WHERE id = 'b'",
        "UPDATE command SET body = CAST(x'ff41' AS TEXT) WHERE id = 'b'",
    ],
)
def test_a_value_that_makes_no_sense_is_damage_and_the_next_call_works(start, path, flip):
    told: list[str] = []
    store = start(on_state=note_replaced(told))
    store.journal.admit([make_entry("a"), make_entry("b")])
    store.call(lambda: store.connection().execute(flip), writes=True)
    with pytest.raises(StorageError, match="damaged"):
        store.journal.start("b", make_moment())
    store.outbox.put(make_reading(), wait=True)
    assert store.journal.setting(HISTORY_LOST) == "1"
    assert len(told) == len(damaged_copies(path)) == 1


def test_damage_that_sqlite_tells_is_believed_once_the_file_was_looked_through(start, path):
    told = sqlite3.DatabaseError("database disk image is malformed")
    told.sqlite_errorcode, told.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"

    def fail() -> None:
        raise told

    store = start()
    store.outbox.put(make_reading(), wait=True)
    for _ in range(2):  # a disk that could not be read for a moment
        with pytest.raises(StorageError, match="damaged"):
            store.call(fail, writes=False)
        assert store.outbox.stats().rows == 1
        store.journal.put_setting("a", "1")
    assert damaged_copies(path) == []
    for _ in range(2):
        with pytest.raises(StorageError, match="damaged"):
            store.call(fail, writes=False)
    assert store.outbox.stats().rows == 0
    assert len(damaged_copies(path)) == 1


# --- a full or failing disk -------------------------------------------------------------------------------------------


def test_when_the_disk_is_full_the_waiting_fail_readings_stay_and_the_thread_goes_on(start, path):
    states: list[str] = []
    store = start(max_pages=60, on_state=lambda state, _detail: states.append(state))
    store.outbox.put(make_reading())
    fill_disk(store)
    assert store.fault is not None
    assert store.journal.setting("big") is None
    assert rows_on_disk(path) == 0
    store.journal.put_setting("small", "x")
    assert store.journal.setting("small") == "x"  # asked after the commit that stored it was dealt with
    assert store.fault is None
    assert rows_on_disk(path) == 1
    assert states == ["degraded", "ok"]


def test_readings_that_do_not_fit_keep_no_command_out(start):
    store = start(max_pages=60)
    for n in range(400):
        store.outbox.put(Reading({f"name_{n}_{i}": i for i in range(10)}, make_moment()))
    store.journal.admit([make_entry("a")])
    assert set(store.journal.known(["a"])) == {"a"}
    assert store.fault is not None
    assert store.outbox.stats().rows == 0


def test_readings_are_tried_again_on_their_own(start, path, clock):
    store = start(max_pages=60)
    store.outbox.put(make_reading())
    fill_disk(store)
    clock.advance(10.0)
    # Any question makes the thread look at its clock.
    for _ in range(2):
        store.journal.setting("a")
    assert rows_on_disk(path) == 1
    assert store.fault is None


def test_while_the_disk_fails_the_oldest_readings_in_memory_give_way_and_are_counted(start, monkeypatch):
    monkeypatch.setattr("agent.store.store.BUFFER_MAX", 5)
    store = start(max_pages=60)
    fill_disk(store)
    for n in range(8):
        store.outbox.put(make_reading({"n": n}))
    store.journal.put_setting("small", "x")
    stats = store.outbox.stats()
    # One row more than was put: the record of what was lost.
    assert (stats.rows, stats.dropped, stats.accepted, stats.delivered) == (6, 3, 9, 0)
    assert numbers(store) == [3, 4, 5, 6, 7]
    (gap,) = gaps(store.outbox.next_batch(10))
    assert (gap.values["agent_gap_rows"], gap.values["agent_gap_reason"]) == (3, 4)


def test_a_commit_that_failed_and_comes_back_out_of_the_log_is_taken_back(start):
    store = start()
    store.outbox.put(make_reading({"first": 1}), wait=True)
    deliver(store, 1)

    def fail() -> None:
        # What a commit leaves in the log when only its sync fails.
        db = store.connection()
        db.execute("INSERT INTO reading SELECT 2, id, 0, 0, '{\"failed\": 1}', 1 FROM origin")
        db.execute("UPDATE counter SET value = 2 WHERE name = 'accepted'")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error

    with pytest.raises(StorageError, match="dmesg"):
        store.call(fail, writes=False)
    assert store.outbox.next_batch(10) == []
    store.outbox.put(make_reading({"second": 2}), wait=True)
    (again,) = store.outbox.next_batch(10)
    assert (again.key, again.reading.values) == (2, {"second": 2})


# --- the time of boots ------------------------------------------------------------------------------------------------


class TestBootTimes:
    TIME = BootTime(1000.0, 1.0, 5.0)

    @pytest.fixture
    def open(self, start):
        return lambda: start(trusts_wall=False)

    def test_they_survive_restarts_and_a_better_one_counts(self, open, clock):
        better = BootTime(1000.2, 0.5, 9.0)
        store = open()
        for time in (self.TIME, better):
            store.boots.learn("boot-1", time)
        assert store.boots.known() == {"boot-1": better}
        assert open().boots.known() == {"boot-1": better}

    def test_no_reading_is_too_old_while_nobody_knows_the_time_of_its_boot_or_of_this_one(self, open, clock):
        store = open()
        store.outbox.put(make_reading({"n": 1}, at=clock.now()), wait=True)
        clock.reboot("boot-2")
        clock.set_wall(START_WALL_S + 50 * 366 * 86_400.0)
        store = open()
        store.outbox.put(make_reading({"n": 2}, at=clock.now()), wait=True)
        assert store.outbox.stats().rows == 2
        store.boots.learn("boot-2", BootTime(START_WALL_S, 0.0, 10.0))
        store.outbox.put(make_reading({"n": 3}, at=clock.now()), wait=True)
        assert store.outbox.stats().rows == 3
        store.boots.learn("boot-1", BootTime(START_WALL_S - 8 * 86_400.0, 0.0, 10.0))
        clock.advance(61.0)
        store.outbox.put(make_reading({"n": 4}, at=clock.now()), wait=True)
        # And the record of the one that went.
        assert sorted(numbers(store)) == [2, 3, 4]
        assert len(gaps(store.outbox.next_batch(9))) == 1

    def test_a_command_of_a_boot_without_a_time_is_forgotten_a_full_span_after_it_could_be_dated(self, open, clock):
        clock.set_wall(0.0)
        store = open()
        store.journal.admit([make_entry("old", CommandState.REPORTED, received=clock.now())])
        clock.reboot("boot-2")
        store.boots.learn("boot-2", BootTime(START_WALL_S, 0.0, 10.0))
        assert store.journal.forget([], START_WALL_S) == 0
        clock.advance(86_400.0)
        assert store.journal.forget([], START_WALL_S + 43_200.0) == 1
