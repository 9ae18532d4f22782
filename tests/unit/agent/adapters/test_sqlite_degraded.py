"""A disk that is full, fails or is read-only: commands first, readings wait in memory, and it recovers by itself."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.room import Reserve
from agent.adapters.store_service import DEGRADED, FULL, OK, StoreService
from agent.core.outbox import Bounds, WhenFull
from agent.core.values import CommandState, Priority, SendOutcome
from agent.errors import StorageError
from tests.conftest import ON_CI
from tests.factories import make_entry, make_moment, make_outcome, make_reading
from tests.fakes import FakeClock

KIB = 1024
RECOVERS_WITHIN_S = 30.0


class FaultyStore(SqliteStore):
    """A store on a disk that answers as the test says."""

    def __init__(self, *arguments, disk: Disk, **options) -> None:
        self.disk = disk
        if disk.fault and disk.fault != "SQLITE_FULL":
            raise self._refusal()
        super().__init__(*arguments, **options)

    def _refusal(self) -> StorageError:
        cause = sqlite3.OperationalError("the disk refuses")
        cause.sqlite_errorname = self.disk.fault
        error = StorageError(f"the disk refuses ({self.disk.fault})")
        error.__cause__ = cause
        return error

    def transaction(self, *, durable: bool = True):
        self.disk.commits += 1
        if self.disk.fault == "SQLITE_FULL" and not self.disk.has_room():
            raise self._refusal()
        if self.disk.fault not in {"", "SQLITE_FULL"}:
            raise self._refusal()
        return super().transaction(durable=durable)

    def _use(self, connection) -> None:
        super()._use(connection)
        accept = self.outbox.accept

        def accept_with_room(drafts) -> int:
            if self.disk.fault == "SQLITE_FULL":
                raise self._refusal()
            return accept(drafts)

        self.outbox.accept = accept_with_room


class Disk(Reserve):
    """A fake disk: ``fault`` is SQLite's name of what it answers.

    When it is full, a commit without readings goes through once the reserve was given back.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.is_reserved = False
        self.commits = 0

    def take(self) -> bool:
        self.is_reserved = self.fault != "SQLITE_FULL"
        return self.is_reserved

    def give_back(self) -> None:
        self.is_reserved = False

    def has_room(self) -> bool:
        return not self.is_reserved


class Bench:
    """A service on the fake disk, and what it told."""

    def __init__(self, path: Path, **options) -> None:
        self.disk = Disk()
        self.clock = FakeClock()
        self.told: list[tuple[str, str]] = []
        bench = self

        class Service(StoreService):
            def _open(self) -> SqliteStore:
                self._reserve = bench.disk
                bench.disk.take()
                return FaultyStore(self.path, clock=bench.clock, bounds=self._bounds, disk=bench.disk)

        self.service = Service(
            path,
            clock=self.clock,
            on_state=lambda state, detail: self.told.append((state, detail)),
            **{"group_window_s": 1.0, **options},
        )
        self.service.start()

    @property
    def state(self) -> str:
        return self.told[-1][0] if self.told else OK

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.service.outbox.put(make_reading({"n": number}, self.clock.now()))

    def advance(self, seconds: float) -> None:
        """Time goes on, and the writer looks at its clock; twice, since the second question comes after the turn."""
        self.clock.advance(seconds)
        self.settle()

    def settle(self) -> None:
        for _ in range(2):
            try:
                self.service.call(lambda _store: None, writes=False)
            except StorageError:
                continue

    def numbers(self) -> list[float]:
        batch = self.service.outbox.next_batch(100_000)
        return sorted(each.reading.values["n"] for each in batch if each.reading.priority is not Priority.GAP)

    def lost(self) -> list[float]:
        batch = self.service.outbox.next_batch(100_000)
        return [each.reading.values["agent_gap_rows"] for each in batch if each.reading.priority is Priority.GAP]


@pytest.fixture
def make_bench(tmp_path) -> Iterator:
    benches: list[Bench] = []

    def make(**options) -> Bench:
        benches.append(Bench(tmp_path / "agent.db", **options))
        return benches[-1]

    yield make
    for bench in benches:
        bench.disk.fault = ""
        bench.service.stop(60)


def live_a_command(service: StoreService, name: str) -> None:
    service.journal.admit([make_entry(name)])
    service.journal.start(name, make_moment())
    service.journal.finish(name, make_outcome(), make_moment())
    service.journal.reported([name])


def test_on_a_full_disk_commands_go_from_receipt_to_report_while_readings_wait_in_memory(make_bench):
    bench = make_bench()
    bench.put(1)
    bench.disk.fault = "SQLITE_FULL"
    bench.put(2)
    live_a_command(bench.service, "a")
    assert bench.service.journal.known(["a"])["a"].state is CommandState.REPORTED
    assert bench.numbers() == []
    assert bench.state == DEGRADED
    assert "commands are still stored, readings wait in memory" in bench.told[-1][1]
    bench.disk.fault = ""
    bench.advance(RECOVERS_WITHIN_S)
    assert bench.numbers() == [1, 2]
    assert [state for state, _ in bench.told] == [DEGRADED, OK]
    assert bench.disk.is_reserved


def test_readings_that_must_be_on_the_disk_leave_the_reserve_to_commands(make_bench):
    bench = make_bench()
    bench.disk.fault = "SQLITE_FULL"
    with pytest.raises(StorageError, match="SQLITE_FULL"):
        bench.service.outbox.put(make_reading(), wait=True)
    with pytest.raises(StorageError, match="no room left for readings"):
        bench.service.outbox.put(make_reading(), wait=True)
    live_a_command(bench.service, "a")


@pytest.mark.parametrize("fault", ["SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_READONLY", "SQLITE_IOERR_FSYNC"])
def test_whatever_the_disk_had_it_is_used_again_within_half_a_minute_though_nothing_new_comes(make_bench, fault):
    bench = make_bench(buffer_max=50)
    bench.disk.fault = fault
    bench.put(*range(120))
    for _ in range(600):
        bench.advance(1.0)
    assert bench.state == DEGRADED
    # However long it lasts, it is asked now and then only.
    assert bench.disk.commits < 300
    bench.disk.fault = ""
    recovered_after_s = 0
    while bench.state != OK and recovered_after_s < RECOVERS_WITHIN_S:
        bench.advance(1.0)
        recovered_after_s += 1
    assert bench.state == OK
    assert bench.numbers() == list(range(70, 120))
    assert bench.lost() == [70]
    assert bench.service.fault is None


def test_a_disk_that_is_well_again_takes_a_command_at_once(make_bench):
    bench = make_bench()
    bench.disk.fault = "SQLITE_READONLY"
    with pytest.raises(StorageError, match="SQLITE_READONLY"):
        bench.service.journal.admit([make_entry("a")])
    bench.disk.fault = ""
    live_a_command(bench.service, "a")
    assert bench.state == OK


def test_what_gave_way_during_several_faults_is_told_once_for_each(make_bench):
    bench = make_bench(buffer_max=10)
    for first in (0, 100):
        bench.disk.fault = "SQLITE_FULL"
        bench.put(*range(first, first + 15))
        bench.advance(5.0)
        bench.disk.fault = ""
        bench.advance(RECOVERS_WITHIN_S)
    assert bench.lost() == [5, 5]
    assert bench.service.outbox.stats().dropped == 10


def test_a_full_outbox_that_blocks_is_told_and_so_is_its_end(make_bench):
    bench = make_bench(bounds=Bounds(max_rows=3, when_full=WhenFull.BLOCK))
    bench.put(1, 2, 3, 4)
    bench.advance(5.0)
    assert bench.told == [(FULL, "the outbox is full and new readings are refused, as outbox.when_full says")]
    batch = bench.service.outbox.next_batch(10)
    bench.service.outbox.settle(SendOutcome(delivered=tuple(each.key for each in batch)))
    bench.put(5)
    bench.advance(5.0)
    assert bench.state == OK
    assert bench.numbers() == [5]


# --- without a window ---------------------------------------------------------------------------------------------


def test_without_a_grouping_window_a_reading_is_on_the_disk_when_its_call_returns(make_bench):
    bench = make_bench(group_window_s=0.0)
    for number in range(5):
        bench.put(number)
        assert bench.service.call(lambda store: store.outbox.stats().rows, writes=False) == number + 1


def test_without_a_grouping_window_a_reading_that_fails_is_told_and_kept_for_later(make_bench):
    bench = make_bench(group_window_s=0.0)
    bench.disk.fault = "SQLITE_IOERR_WRITE"
    with pytest.raises(StorageError):
        bench.put(1)
    bench.disk.fault = ""
    bench.advance(RECOVERS_WITHIN_S)
    assert bench.numbers() == [1]


# --- a real small disk --------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path, require_program) -> Iterator[Path]:
    """A file system of 2 MiB; only root may mount one."""
    mount, umount = require_program("mount"), require_program("umount")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        reason = f"no file system can be mounted here: {done.stderr.decode().strip()}"
        pytest.fail(reason) if ON_CI else pytest.skip(reason)
    yield folder
    subprocess.run([umount, folder], check=True)


def test_on_a_real_full_disk_commands_are_stored_and_readings_come_back(small_disk):
    clock, told = FakeClock(), []
    service = StoreService(
        small_disk / "agent.db",
        clock=clock,
        bounds=Bounds(reserve_bytes=256 * KIB),
        on_state=lambda state, _detail: told.append(state),
    )
    service.start()
    try:
        service.outbox.put(make_reading({"n": 0}), wait=True)
        ballast = small_disk / "ballast"
        fill(ballast)
        with pytest.raises(StorageError, match="SQLITE_FULL"):
            put_until_it_fails(service)
        for number in range(100):
            live_a_command(service, f"c{number}")
        assert told == [DEGRADED]
        service.outbox.put(make_reading({"n": -1}))
        ballast.unlink()
        clock.advance(RECOVERS_WITHIN_S)
        service.journal.setting("a")
        service.journal.setting("a")
        assert told == [DEGRADED, OK]
        numbers = [each.reading.values["n"] for each in service.outbox.next_batch(10_000)]
        assert {0, -1} <= set(numbers)
        assert (small_disk / "agent.db.reserve").stat().st_blocks * 512 >= 256 * KIB
        assert len(service.journal.known([f"c{number}" for number in range(100)])) == 100
    finally:
        service.stop(60)


def test_a_process_that_starts_on_a_full_disk_takes_commands(small_disk):
    path, clock = small_disk / "agent.db", FakeClock()
    bounds = Bounds(reserve_bytes=256 * KIB)
    first = StoreService(path, clock=clock, bounds=bounds)
    first.start()
    first.outbox.put(make_reading({"n": 0}), wait=True)
    first.stop(60)
    fill(small_disk / "ballast")
    second = StoreService(path, clock=clock, bounds=bounds)
    second.start()
    try:
        live_a_command(second, "a")
        assert second.outbox.stats().rows == 1
    finally:
        second.stop(60)


def put_until_it_fails(service: StoreService) -> None:
    for number in range(1, 5000):
        service.outbox.put(make_reading({"n": number}), wait=True)


def fill(ballast: Path) -> None:
    """Take what the file system has left."""
    with ballast.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass


# --- the reserve --------------------------------------------------------------------------------------------------


def test_a_reserve_takes_real_blocks_gives_them_back_and_can_be_had_again(tmp_path):
    path = tmp_path / "reserve"
    reserve = Reserve(path, 64 * KIB)
    for _ in range(2):
        assert reserve.take()
        assert reserve.take()
        assert path.stat().st_blocks * 512 >= 64 * KIB
        assert path.stat().st_mode & 0o777 == 0o600
        reserve.give_back()
        assert path.stat().st_size == 0


def test_a_reserve_that_is_not_wanted_any_more_is_removed(tmp_path):
    path = tmp_path / "reserve"
    Reserve(path, 64 * KIB).take()
    assert Reserve(path, 0).take()
    assert not path.exists()


def test_a_reserve_that_cannot_be_had_says_so(tmp_path):
    assert not Reserve(tmp_path / "nowhere" / "reserve", 64 * KIB).take()
