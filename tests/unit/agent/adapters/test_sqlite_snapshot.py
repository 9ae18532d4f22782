"""The copy of file and log in memory is what SQLite itself would read, at every instant and after every tear."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.snapshot import apply_wal, read_snapshot
from agent.errors import StorageError
from tests.factories import make_reading
from tests.fakes import FakeClock


def dump(content: bytes | None) -> list[str]:
    if content is None:
        return []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return list(connection.iterdump())


def dump_by_sqlite(path: Path, wal: bytes | None) -> list[str]:
    """What SQLite makes of a copy of the two files."""
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    copy_wal = copy.with_name("copy.db-wal")
    copy_wal.unlink(missing_ok=True)
    if wal is not None:
        copy_wal.write_bytes(wal)
    with closing(sqlite3.connect(copy)) as connection:
        return list(connection.iterdump())


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(["put", "set", "settle", "checkpoint"]), st.integers(1, 400)), max_size=15))
def test_after_every_commit_it_is_what_sqlite_reads(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("snapshot") / "agent.db"
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        for step, size in steps:
            if step == "put":
                with store.transaction():
                    for n in range(size):
                        store.outbox.put(make_reading({"n": n}))
            elif step == "set":
                store.journal.put_setting("text", "x" * size * 20)
            elif step == "settle":
                store.outbox._delete([each.key for each in store.outbox.next_batch(size)])
            else:
                store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)" if size % 2 else "PRAGMA wal_checkpoint(RESTART)")
            assert dump(read_snapshot(path)) == list(store._db.iterdump())


def test_a_log_that_is_torn_anywhere_gives_what_sqlite_would_give(tmp_path):
    path = tmp_path / "agent.db"
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        for n in range(6):
            store.outbox.put(make_reading({"n": n}))
        content, wal = path.read_bytes(), path.with_name("agent.db-wal").read_bytes()
        for length in range(0, len(wal), 613):
            assert dump(apply_wal(content, wal[:length])) == dump_by_sqlite(path, wal[:length])


@pytest.mark.parametrize("offset", [0, 9, 17, 25, 33, 41, 60, 2000, 9000])
def test_a_flipped_bit_in_the_log_ends_it_where_sqlite_would_end_it(tmp_path, offset):
    path = tmp_path / "agent.db"
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        store.outbox.put(make_reading())
        content, wal = path.read_bytes(), bytearray(path.with_name("agent.db-wal").read_bytes())
        wal[offset] ^= 0x10
        assert dump(apply_wal(content, bytes(wal))) == dump_by_sqlite(path, bytes(wal))


def test_frames_of_an_older_round_of_the_log_do_not_count(tmp_path):
    path = tmp_path / "agent.db"
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        for n in range(50):
            store.outbox.put(make_reading({"n": n}))
        store._db.execute("PRAGMA wal_checkpoint(RESTART)")
        store.journal.put_setting("new", "round")
        assert path.with_name("agent.db-wal").stat().st_size > 20_000
        assert dump(read_snapshot(path)) == list(store._db.iterdump())


def test_no_file_is_nothing(tmp_path):
    assert read_snapshot(tmp_path / "agent.db") is None


class _Restless(type(Path())):  # type: ignore[misc]
    """A file that somebody writes whenever somebody reads."""

    def open(self, *arguments, **named):
        with Path(self).open("ab") as file:
            file.write(b"1")
        return super().open(*arguments, **named)


def test_a_file_that_never_rests_is_told(tmp_path):
    with pytest.raises(StorageError, match="changes faster than it can be read: try again"):
        read_snapshot(_Restless(tmp_path / "agent.db"))
