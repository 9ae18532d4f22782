"""The room ahead in the write-ahead log: a small commit overwrites, and nobody ever reads the zeros."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.log_room import STEP_BYTES, LogRoom
from agent.adapters.store.schema import checkpoint_bytes
from agent.adapters.store.snapshot import read_snapshot
from agent.core.outbox import Bounds
from tests.factories import make_reading
from tests.fakes import FakeClock

SMALL = Bounds(max_bytes=1024 * 1024, reserve_bytes=0)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "agent.db"


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def numbers(store: SqliteStore) -> list[float]:
    return [each.reading.values["n"] for each in store.next_batch(1000)]


def test_after_its_first_commit_the_log_grows_once_in_sixty_and_not_with_each(path):
    sizes = []
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        for number in range(150):
            store.put_setting("a", str(number))
            sizes.append(log_of(path).stat().st_size)
    assert 3 <= len(set(sizes)) <= 4
    assert sizes[0] >= STEP_BYTES


def test_it_stops_where_the_log_begins_anew(path):
    most = checkpoint_bytes(SMALL.max_bytes)
    with closing(SqliteStore(path, clock=FakeClock(), bounds=SMALL)) as store:
        for number in range(300):
            store.put_setting("a", str(number))
            # The commit that reaches the mark may end a page or two behind it.
            assert log_of(path).stat().st_size <= most + 4096


def test_what_a_power_cut_leaves_is_whole_with_the_zeros_without_them_and_with_a_part_of_them(path, tmp_path):
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        for number in range(5):
            store.put(make_reading({"n": number}))
        log = log_of(path).read_bytes()
        used = len(log.rstrip(b"\0"))
        assert len(log) - used > STEP_BYTES // 2
        assert read_snapshot(path)
        for kept in (used, used + 1, used + 700, used + 4096, len(log)):
            copy = tmp_path / str(kept)
            copy.mkdir()
            shutil.copy(path, copy / path.name)
            log_of(copy / path.name).write_bytes(log[:kept])
            with closing(SqliteStore(copy / path.name, clock=FakeClock())) as found:
                assert numbers(found) == [0, 1, 2, 3, 4]
                assert not found.incidents


def test_a_log_that_begins_anew_over_its_zeros_and_its_past_keeps_what_is_new(path, tmp_path):
    with closing(SqliteStore(path, clock=FakeClock(), bounds=SMALL)) as store:
        for number in range(200):
            store.put_setting("a", str(number))
        store.put(make_reading({"n": 7}))
        copy = tmp_path / "copy" / path.name
        copy.parent.mkdir()
        shutil.copy(path, copy)
        shutil.copy(log_of(path), log_of(copy))
        with closing(SqliteStore(copy, clock=FakeClock())) as found:
            assert numbers(found) == [7]
            assert found.setting("a") == "199"


def test_a_disk_with_little_room_keeps_it(path):
    with closing(SqliteStore(path, clock=FakeClock(), free_bytes=lambda: 15_000_000)) as store:
        store.put_setting("a", "1")
        assert log_of(path).stat().st_size < STEP_BYTES


def test_a_log_that_cannot_be_written_costs_nothing(tmp_path):
    LogRoom(tmp_path / "missing" / "agent.db", 1_000_000, lambda: None).follow()
    log = tmp_path / "agent.db-wal"
    log.mkdir()
    LogRoom(tmp_path / "agent.db", 1_000_000, lambda: None).follow()
    assert log.is_dir()
