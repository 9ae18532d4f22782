"""The writer's thread: groups, failures, the end. No test waits for time to pass: the window is nothing or for ever."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.status import read_status
from agent.adapters.store_service import SETTLE_WITHIN_S, StoreService
from agent.core.commands import HISTORY_LOST, IllegalMove
from agent.core.timekeeping import BootTime
from agent.core.values import CommandState, Priority, SendOutcome
from agent.errors import ConfigurationError, StorageError
from tests.factories import make_entry, make_moment, make_outcome, make_reading
from tests.fakes import FakeClock

NEVER_S = 1e9


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def services() -> Iterator[list[StoreService]]:
    running: list[StoreService] = []
    yield running
    for service in running:
        service.stop(60)


@pytest.fixture
def start(path, services):
    def start_service(**options) -> StoreService:
        service = StoreService(path, **{"clock": FakeClock(), "group_window_s": NEVER_S, **options})
        service.start()
        services.append(service)
        return service

    return start_service


def on_disk(path: Path) -> Path:
    """A copy of file and log as they are: what a power cut would leave."""
    folder = Path(tempfile.mkdtemp(dir=path.parent))
    for ending in ("", "-wal"):
        part = path.with_name(path.name + ending)
        if part.exists():
            shutil.copy(part, folder)
    return folder / path.name


def rows_on_disk(path: Path) -> int:
    status = read_status(on_disk(path))
    assert status is not None
    return status.outbox.rows


def boot_times_on_disk(path: Path) -> list[BootTime]:
    with closing(sqlite3.connect(on_disk(path))) as copy:
        return [BootTime(*row) for row in copy.execute("SELECT low, high, mono FROM boot")]


def numbers(service: StoreService) -> list[float]:
    batch = service.outbox.next_batch(1000)
    return [each.reading.values["n"] for each in batch if each.reading.priority is not Priority.GAP]


def flip(service: StoreService, sql: str) -> None:
    """Change the file behind the writer's back, as a flipped bit does."""
    service.call(lambda store: store._db.execute(sql), writes=False)


# --- groups -------------------------------------------------------------------------------------------------------


def test_a_reading_waits_for_company_and_goes_with_the_next_commit(start, path):
    service = start()
    service.outbox.put(make_reading())
    service.outbox.put(make_reading())
    assert service.outbox.next_batch(10) == []
    assert rows_on_disk(path) == 0
    service.journal.put_setting("a", "1")
    assert rows_on_disk(path) == 2


def test_a_reading_that_waits_too_long_goes_alone(start, path):
    clock = FakeClock()
    service = start(clock=clock, group_window_s=0.0)
    for _ in range(3):
        service.outbox.put(make_reading())
    # With a window of nothing the writer was woken at once; a request behind it proves that its turn is over.
    service.journal.put_setting("a", "1")
    assert rows_on_disk(path) == 3


def test_many_readings_do_not_wait_for_the_window(start, path):
    service = start(buffer_max=20)
    for n in range(200):
        service.outbox.put(make_reading({"n": n}))
    assert service.stop(60)
    assert rows_on_disk(path) == 200


def test_a_fast_producer_waits_for_a_healthy_disk_and_nothing_is_dropped(start):
    service = start(buffer_max=4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: service.outbox.put(make_reading({"n": n})), range(400)))
    service.journal.put_setting("flush", "1")
    stats = service.outbox.stats()
    assert (stats.accepted, stats.dropped) == (400, 0)


def test_the_stop_commits_what_waits(start, path):
    service = start()
    service.outbox.put(make_reading())
    assert service.stop(60)
    assert rows_on_disk(path) == 1


def test_many_threads_share_commits_and_each_gets_its_own_answer(start):
    service = start()
    ids = [f"c{n}" for n in range(60)]
    service.journal.admit([make_entry(each) for each in ids])

    def live(command_id: str) -> CommandState:
        service.journal.start(command_id, make_moment())
        service.outbox.put(make_reading())
        service.journal.finish(command_id, make_outcome(), make_moment())
        service.journal.reported([command_id])
        return service.journal.known([command_id])[command_id].state

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(live, ids)) == {CommandState.REPORTED}
    assert service.outbox.stats().accepted == 60


def test_one_illegal_move_in_a_group_fails_alone(start):
    service = start()
    service.journal.admit([make_entry("a")])
    gate = threading.Event()
    # The writer is held while three requests gather, so they share one transaction.
    with ThreadPoolExecutor(4) as pool:
        held = pool.submit(service.call, lambda _store: gate.wait(60), writes=False)
        good = pool.submit(service.journal.start, "a", make_moment())
        bad = pool.submit(service.journal.reported, ["unknown"])
        other = pool.submit(service.journal.put_setting, "s", "1")
        gate.set()
        held.result(60)
        good.result(60)
        other.result(60)
        with pytest.raises(IllegalMove):
            bad.result(60)
    assert service.journal.known(["a"])["a"].state == CommandState.STARTED
    assert service.journal.setting("s") == "1"


# --- lazy settlement ----------------------------------------------------------------------------------------------


def put_and_send(service: StoreService) -> tuple[int, ...]:
    service.outbox.put(make_reading(), wait=True)
    return tuple(each.key for each in service.outbox.next_batch(10))


def test_a_deletion_that_a_repeat_cannot_hurt_waits_for_the_next_commit(start, path):
    service = start(settles_lazily=lambda _outcome: True)
    service.outbox.settle(SendOutcome(delivered=put_and_send(service)))
    assert rows_on_disk(path) == 1
    assert service.outbox.next_batch(10) == []
    assert (service.outbox.stats().rows, service.outbox.stats().delivered) == (0, 1)
    service.journal.put_setting("a", "1")
    assert rows_on_disk(path) == 0
    assert (service.outbox.stats().rows, service.outbox.stats().delivered) == (0, 1)


def test_without_that_protection_a_deletion_is_committed_at_once(start, path):
    service = start()
    service.outbox.settle(SendOutcome(delivered=put_and_send(service)))
    assert rows_on_disk(path) == 0


def test_a_refusal_is_committed_at_once(start, path):
    service = start(settles_lazily=lambda _outcome: True)
    (key,) = put_and_send(service)
    service.outbox.settle(SendOutcome(refused={key: "no"}))
    assert rows_on_disk(path) == 0
    assert service.outbox.stats().set_aside == 1


def test_a_waiting_deletion_happens_on_its_own_when_nothing_comes_along(start, path):
    clock = FakeClock()
    service = start(settles_lazily=lambda _outcome: True, clock=clock)
    service.outbox.settle(SendOutcome(delivered=put_and_send(service)))
    clock.advance(SETTLE_WITHIN_S + 1.0)
    # Any question makes the writer look at its clock.
    service.journal.setting("a")
    service.journal.setting("a")
    assert rows_on_disk(path) == 0


def test_a_better_time_of_this_boot_makes_no_commit_of_its_own(start, path):
    service, first, better = start(), BootTime(1000.0, 1002.0, 5.0), BootTime(1000.5, 1001.0, 9.0)
    service.boot_times.learn("boot-1", first)
    service.journal.put_setting("a", "0")
    service.boot_times.learn("boot-1", better, rides=True)
    assert service.boot_times.known() == {"boot-1": better}
    assert boot_times_on_disk(path) == [first]
    service.journal.put_setting("a", "1")
    assert boot_times_on_disk(path) == [better]


# --- failures -----------------------------------------------------------------------------------------------------


def test_when_the_disk_is_full_the_waiting_fail_readings_stay_and_the_thread_goes_on(start, path):
    clock = FakeClock()
    service = start(max_pages=60, clock=clock)
    service.outbox.put(make_reading({"first": 1}))
    with pytest.raises(StorageError, match="no room left for it: free space on its disk"):
        service.journal.put_setting("big", "x" * 100_000)
    assert service.fault is not None
    assert service.journal.setting("big") is None
    assert rows_on_disk(path) == 0
    service.journal.put_setting("small", "x")
    assert service.fault is None
    assert rows_on_disk(path) == 1


def test_while_the_disk_fails_the_oldest_readings_in_memory_give_way_and_are_counted(start):
    service = start(max_pages=60, buffer_max=5)
    with pytest.raises(StorageError):
        service.journal.put_setting("big", "x" * 100_000)
    for n in range(8):
        service.outbox.put(make_reading({"n": n}))
    service.journal.put_setting("small", "x")
    stats = service.outbox.stats()
    # One row more than was put: the record of what was lost.
    assert (stats.rows, stats.dropped, stats.accepted, stats.delivered) == (6, 3, 9, 0)
    assert numbers(service) == [3, 4, 5, 6, 7]
    (gap,) = [each.reading for each in service.outbox.next_batch(10) if each.reading.priority is Priority.GAP]
    assert (gap.values["agent_gap_rows"], gap.values["agent_gap_reason"]) == (3, 6)


class _Crowded(StoreService):
    """Readings keep coming in while a commit is under way."""

    crowd: tuple[int, ...] = ()

    def _write(self, store, waiting, writes):
        for n in self.crowd:
            self.outbox.put(make_reading({"n": n}))
        self.crowd = ()
        super()._write(store, waiting, writes)


@pytest.mark.parametrize(("crowd", "left", "dropped"), [(2, [0, 1, 2, 100, 101], 0), (5, [0, 1, 2, 102, 103, 104], 2)])
def test_readings_that_give_way_during_a_commit_are_saved_once_and_only_the_lost_are_counted(
    path, services, crowd, left, dropped
):
    service = _Crowded(path, clock=FakeClock(), group_window_s=NEVER_S, max_pages=60, buffer_max=3)
    services.append(service)
    service.start()
    with pytest.raises(StorageError):
        service.journal.put_setting("big", "x" * 100_000)
    for n in range(3):
        service.outbox.put(make_reading({"n": n}))
    service.crowd = tuple(range(100, 100 + crowd))
    service.journal.put_setting("small", "x")
    service.journal.put_setting("small", "y")
    assert numbers(service) == left
    assert service.outbox.stats().dropped == dropped


def test_a_deletion_that_waits_survives_a_failed_commit(start, path):
    service = start(settles_lazily=lambda _outcome: True, max_pages=60)
    service.outbox.settle(SendOutcome(delivered=put_and_send(service)))
    with pytest.raises(StorageError):
        service.journal.put_setting("big", "x" * 100_000)
    assert service.outbox.next_batch(10) == []
    service.journal.put_setting("small", "x")
    assert rows_on_disk(path) == 0


def test_readings_are_tried_again_on_their_own(start, path):
    clock = FakeClock()
    service = start(max_pages=60, clock=clock)
    service.outbox.put(make_reading())
    with pytest.raises(StorageError):
        service.journal.put_setting("big", "x" * 100_000)
    clock.advance(2.0)
    service.journal.setting("a")
    service.journal.setting("a")
    assert rows_on_disk(path) == 1
    assert service.fault is None


def test_damage_found_in_use_replaces_the_file_and_the_next_call_works(start, path, services):
    told: list[str] = []
    service = start(on_incident=told.append)
    service.journal.admit([make_entry("a"), make_entry("b")])
    flip(service, "UPDATE command SET state = 'recejved' WHERE id = 'b'")
    with pytest.raises(StorageError, match="damaged"):
        service.journal.known(["b"])
    assert set(service.journal.known(["a", "b"])) == {"a"}
    assert service.journal.setting(HISTORY_LOST) == "1"
    assert len(told) == len(service.incidents) == 1
    assert "was damaged" in told[0]


def test_a_write_that_meets_damage_fails_and_its_repetition_works(start, path):
    service = start()
    service.journal.admit([make_entry("a"), make_entry("b")])
    flip(service, "UPDATE command SET payload = 'x' WHERE id = 'b'")
    service.outbox.put(make_reading())
    with pytest.raises(StorageError, match="damaged"):
        service.journal.start("b", make_moment())
    service.journal.start("a", make_moment())
    assert service.journal.known(["a"])["a"].attempts == 1
    assert service.outbox.stats().rows == 1


# --- life ---------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_opened_is_told_at_the_start_and_a_later_start_may_work(path):
    service = StoreService(path, clock=FakeClock())
    with closing(SqliteStore(path, clock=FakeClock())), pytest.raises(StorageError, match="another device-agent"):
        service.start()
    service.start()
    assert service.journal.is_empty()
    assert service.stop(60)


def test_a_newer_programs_file_is_refused_at_the_start(path):
    SqliteStore(path, clock=FakeClock()).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE schema_version SET version = 99")
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigurationError, match="schema version 99"):
        StoreService(path, clock=FakeClock()).start()


def test_an_incident_of_the_start_is_told(start, path):
    path.write_bytes(os.urandom(4000))
    told: list[str] = []
    start(on_incident=told.append)
    assert len(told) == 1


def test_after_the_stop_every_call_says_so(start):
    service = start()
    service.stop(60)
    for call in (service.journal.is_empty, lambda: service.outbox.put(make_reading())):
        with pytest.raises(StorageError, match="the store is closed"):
            call()


def test_progress_grows_with_work_and_nothing_is_stuck(start):
    service = start()
    before = service.progress
    service.journal.put_setting("a", "1")
    service.journal.put_setting("a", "2")
    assert service.progress > before
    assert service.stuck_for_s(NEVER_S) == 0.0 or service.stuck_for_s(1000.0) == 0.0


def test_a_turn_that_does_not_end_is_stuck(start):
    service = start(clock=FakeClock(monotonic_s=1000.0))
    inside, gate = threading.Event(), threading.Event()

    def hang(_store) -> None:
        inside.set()
        gate.wait(60)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(service.call, hang, writes=False)
        inside.wait(60)
        assert service.stuck_for_s(1010.0) == 0.0
        assert service.stuck_for_s(1100.0) == 70.0
        gate.set()
        held.result(60)
