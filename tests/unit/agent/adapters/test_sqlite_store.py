"""What the file may go through: damage, a full disk, a newer program, a second agent."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.failures import is_damage
from agent.adapters.store.salvage import begin_replacing, move_aside
from agent.adapters.store.schema import PAGE_BYTES, SCHEMA
from agent.adapters.store.status import read_status
from agent.core.commands import HISTORY_LOST
from agent.core.timekeeping import BootTime
from agent.core.values import CommandState, SendOutcome
from agent.errors import ConfigurationError, StorageError
from tests.factories import make_entry, make_outcome, make_reading
from tests.fakes import START_WALL_S, FakeClock


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "agent.db"


def open_store(path: Path, **options) -> SqliteStore:
    return SqliteStore(path, clock=FakeClock(), **options)


def fill(path: Path, commands: int = 300, readings: int = 300) -> None:
    """A store of many pages, closed in order, so that everything is in the file itself."""
    with closing(open_store(path)) as store, store.transaction():
        outcome = make_outcome()
        store.journal.admit([make_entry(f"c{n}", CommandState.REPORTED, outcome=outcome) for n in range(commands)])
        store.journal.put_setting("interval.board", "30")
        for n in range(readings):
            store.outbox.put(make_reading({"n": n}))


def damaged_files(path: Path) -> list[Path]:
    return sorted(each for each in path.parent.glob("agent.db.damaged-*") if not each.name.endswith(("-wal", "-shm")))


# --- the file -----------------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_only_and_in_wal_mode(path):
    with closing(open_store(path)) as store:
        store.journal.put_setting("a", "1")
        modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    # No -shm: its pages would be written to the flash over and over.
    assert set(modes) == {"agent.db", "agent.db-wal", "agent.db.lock"}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)


def test_a_newer_programs_file_is_refused_with_a_sentence_and_left_as_it_is(path):
    fill(path, 1, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE schema_version SET version = ?", (SCHEMA.version + 1,))
        connection.execute(f"PRAGMA user_version = {SCHEMA.version + 1}")
    before = path.read_bytes()
    with pytest.raises(
        ConfigurationError, match=f"schema version {SCHEMA.version + 1}.*install the newer device-agent"
    ):
        open_store(path)
    assert path.read_bytes() == before
    assert damaged_files(path) == []


def test_a_file_to_which_a_newer_program_only_added_something_is_used_and_kept_as_it_is(path):
    newer = replace(
        SCHEMA,
        steps={
            **SCHEMA.steps,
            SCHEMA.version + 1: "ALTER TABLE reading ADD COLUMN more INTEGER NOT NULL DEFAULT 7;"
            "ALTER TABLE boot ADD COLUMN more TEXT; ALTER TABLE gap ADD COLUMN more TEXT;"
            "CREATE TABLE more (x INTEGER)",
        },
        oldest_reader=SCHEMA.version,
    )
    fill(path, 1, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        newer.prepare(connection, path)
        assert newer.read_version(connection, path) == SCHEMA.version + 1
    fill(path, 2, 2)
    with closing(sqlite3.connect(path)) as connection:
        assert newer.read_version(connection, path) == SCHEMA.version + 1
        assert connection.execute("SELECT count(body), min(more), max(more) FROM reading").fetchone() == (3, 7, 7)


def test_another_programs_database_is_refused_and_left_as_it_is(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE recipe (name TEXT)")
    with pytest.raises(ConfigurationError, match="another program's database"):
        open_store(path)
    assert damaged_files(path) == []


def test_a_second_agent_is_kept_out_while_the_first_one_lives(path):
    with closing(open_store(path)) as store:
        with pytest.raises(StorageError, match="another device-agent uses"):
            open_store(path)
        store.journal.put_setting("a", "1")
    with closing(open_store(path)) as store:
        assert store.journal.setting("a") == "1"


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match="No such file or directory: mend the state directory"):
        open_store(tmp_path / "nowhere" / "agent.db")


def test_boots_that_no_reading_is_from_are_forgotten(path):
    clock = FakeClock()
    for boot in range(5):
        clock.reboot(f"boot-{boot}")
        with closing(SqliteStore(path, clock=clock)) as store:
            store.outbox.put(make_reading(at=clock.now()))
            if boot < 3:
                store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in store.outbox.next_batch(10))))
    SqliteStore(path, clock=clock).close()
    with closing(sqlite3.connect(path)) as connection:
        boots = {row[0] for row in connection.execute("SELECT boot_id FROM origin")}
    assert boots == {"boot-3", "boot-4"}


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"\0" * 5000, b"not a database at all, " * 300, b"SQLite format 3\0" + b"\xff" * 3000]
)
def test_a_file_that_is_no_database_is_moved_aside_whole_and_a_new_one_is_begun(path, content):
    path.write_bytes(content)
    with closing(open_store(path)) as store:
        assert len(store.incidents) == 1
        assert "was damaged" in store.incidents[0]
        assert store.journal.setting(HISTORY_LOST) == "1"
        assert store.journal.is_empty()
        store.journal.admit([make_entry("a")])
        assert store.journal.setting(HISTORY_LOST) is None
    (aside,) = damaged_files(path)
    assert aside.read_bytes() == content


def test_an_empty_file_is_a_new_one_and_no_incident(path):
    path.touch()
    with closing(open_store(path)) as store:
        assert store.incidents == []
        assert store.journal.is_empty()


@pytest.mark.parametrize(("keep", "at_least"), [(0.4, 5), (0.6, 45), (0.9, 60)])
def test_a_torn_file_gives_back_what_is_left_of_it(path, keep, at_least):
    fill(path)
    size = path.stat().st_size
    os.truncate(path, int(size * keep) // PAGE_BYTES * PAGE_BYTES + 100)
    with closing(open_store(path)) as store:
        assert len(store.incidents) == 1
        saved = store.journal.known([f"c{n}" for n in range(300)])
        assert len(saved) >= at_least
        assert all(entry.state == CommandState.REPORTED for entry in saved.values())
        assert not store.journal.is_empty()
        assert store.journal.setting(HISTORY_LOST) == "1"


# Before these are the list of tables, without which nothing can be read, and each table's first page.
@pytest.mark.parametrize("page", range(20, 56, 4))
def test_a_page_of_rubbish_costs_what_lies_on_it_and_not_what_lies_behind_it(path, page):
    fill(path)
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)
    with closing(open_store(path)) as store:
        assert len(store.incidents) == 1
        commands = store.journal.known([f"c{n}" for n in range(300)])
        readings = store.outbox.next_batch(1000)
        # One page holds a few rows; an inner page of the tree may hide the rows of one table.
        assert len(commands) + len(readings) > 250
        assert [each.reading.values["n"] for each in readings] == sorted(each.reading.values["n"] for each in readings)
    with closing(open_store(path)) as store:
        assert store.incidents == []


@pytest.mark.parametrize("marker", [b'{"n":150}', b'{"n":100}', b'{"n":200}'])
def test_what_lies_behind_a_broken_leaf_is_read_from_the_other_end(path, marker):
    fill(path)
    page = path.read_bytes().index(marker) // PAGE_BYTES
    with path.open("r+b") as file:
        file.seek(page * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)
    with closing(open_store(path)) as store:
        saved = {each.reading.values["n"] for each in store.outbox.next_batch(1000)}
        assert len(saved) > 250
        assert {0, 299} <= saved
        assert len(store.journal.known([f"c{n}" for n in range(300)])) == 300


def test_salvaged_readings_keep_their_idempotency_keys_and_new_ones_get_others(path):
    fill(path, 0, 50)
    with closing(open_store(path)) as store:
        before = {each.key: each.idempotency_key for each in store.outbox.next_batch(100)}
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - PAGE_BYTES)
    with closing(open_store(path)) as store:
        assert store.incidents
        store.outbox.put(make_reading({"new": 1}))
        after = store.outbox.next_batch(100)
    old = {each.key: each.idempotency_key for each in after if "n" in each.reading.values}
    (new,) = [each for each in after if "new" in each.reading.values]
    assert old
    assert old.items() <= before.items()
    assert new.idempotency_key not in before.values()
    assert new.idempotency_key.split("-")[0] != before[1].split("-")[0]


@pytest.mark.parametrize(
    "flip",
    [
        "UPDATE command SET state = 'recejved' WHERE id = 'c7'",
        "UPDATE command SET payload = '{\"a\":' WHERE id = 'c7'",
        "UPDATE command SET handler = CAST(x'ff41' AS TEXT) WHERE id = 'c7'",
    ],
)
def test_a_value_that_makes_no_sense_is_damage_that_is_found_in_use_and_costs_that_row(path, flip):
    fill(path, 20, 20)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(flip)
    with closing(open_store(path)) as store:
        assert store.incidents == []
        with pytest.raises(StorageError, match="damaged"), store.looking():
            store.journal.known(["c7"])
        store.replace_damaged()
        assert len(store.incidents) == 1
        assert set(store.journal.known([f"c{n}" for n in range(20)])) >= {f"c{n}" for n in range(20)} - {"c7"}
        assert store.outbox.stats().rows == 20


def test_damage_that_sqlite_tells_is_believed_once_the_file_was_looked_through(path):
    fill(path, 3, 3)
    told = sqlite3.DatabaseError("database disk image is malformed")
    told.sqlite_errorcode, told.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    with closing(open_store(path)) as store:
        store.replace_damaged(told)
        assert (store.incidents, store.outbox.stats().rows) == ([], 3)
        store.replace_damaged(told)
        assert (len(store.incidents), store.outbox.stats().rows) == (1, 3)


@pytest.mark.parametrize("reached", ["noted", "moved", "begun"])
def test_a_replacement_that_was_cut_short_is_finished_at_the_next_start(path, reached):
    fill(path, 20, 20)
    aside = begin_replacing(path, FakeClock().now().wall_s)
    if reached != "noted":
        move_aside(path, aside)
    if reached == "begun":
        path.write_bytes(b"half a new file")
    for _ in range(2):
        with closing(open_store(path)) as store:
            assert set(store.journal.known([f"c{n}" for n in range(20)])) == {f"c{n}" for n in range(20)}
            assert store.outbox.stats().rows == 20
            assert store.journal.setting(HISTORY_LOST) == "1"
    assert damaged_files(path) == [aside]


def test_a_commit_that_failed_and_comes_back_out_of_the_log_is_taken_back(path):
    with closing(open_store(path)) as store:
        store.outbox.put(make_reading({"first": 1}))
        store.outbox.settle(SendOutcome(delivered=(1,)))
        # What a commit leaves in the log when only its sync fails.
        store._db.execute("INSERT INTO reading (key, origin, mono, wall, body) VALUES (2, 1, 0, 0, '{\"failed\": 1}')")
        store._db.execute("DELETE FROM reading WHERE key = 1")
        store.reopen()
        assert store.outbox.next_batch(10) == []
        store.outbox.put(make_reading({"second": 2}))
        (again,) = store.outbox.next_batch(10)
        assert (again.key, again.reading.values) == (2, {"second": 2})


def test_damaged_files_of_the_same_second_do_not_overwrite_each_other(path):
    for number in range(3):
        path.write_bytes(b"rubbish %d" % number * 500)
        open_store(path).close()
    assert len({each.read_bytes() for each in damaged_files(path)}) == 3


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bits_anywhere_in_file_and_log_never_stop_the_agent_and_nothing_is_made_up(path, seed):
    """What is read back makes sense, keys stay unique, and the store takes new readings."""
    chance = random.Random(seed)
    fill(path, 60, 60)
    with closing(open_store(path)) as store:
        for n in range(60, 120):
            store.outbox.put(make_reading({"n": n}))
        # As the power would leave it: the log is full and nobody closed anything.
        copies = {each: each.read_bytes() for each in (path, path.with_name("agent.db-wal"))}
    for each, content in copies.items():
        damaged = bytearray(content)
        for _ in range(chance.randint(0, 3)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        each.write_bytes(damaged)
    with closing(open_store(path)) as store:
        for _ in range(8):
            # Damage that shows only in use is found by whoever reads it, and then the file is replaced, too.
            try:
                with store.looking():
                    batch = store.outbox.next_batch(1000)
                    store.journal.known([f"c{n}" for n in range(60)])
                store.outbox.put(make_reading({"n": 1000}))
                break
            except StorageError as error:
                if not is_damage(error.__cause__):
                    raise
                store.replace_damaged(error.__cause__)
        else:
            pytest.fail("the damage stays")
        assert len({each.idempotency_key for each in batch}) == len(batch)
        assert len({each.key for each in batch}) == len(batch) <= 120
        assert all(isinstance(value, int | float) for each in batch for value in each.reading.values.values())
        rows = store.outbox.stats().rows
    with closing(open_store(path)) as store:
        assert store.outbox.stats().rows == rows


# --- a full or failing disk -----------------------------------------------------------------------------------------


def test_on_a_full_disk_the_call_fails_with_the_fix_and_nothing_is_half_written(path):
    with closing(open_store(path, max_pages=60)) as store:
        accepted = 0
        fault = ""
        while not fault:
            try:
                store.outbox.put(make_reading({f"reading_{n}": n for n in range(20)}))
                accepted += 1
            except StorageError as error:
                fault = str(error)
        assert fault == f"{path}: there is no room left for it: free space on its disk (SQLITE_FULL)"
        assert accepted > 10
        assert store.outbox.stats().rows == len(store.outbox.next_batch(1000)) == accepted
        store.outbox.settle(SendOutcome(delivered=tuple(each.key for each in store.outbox.next_batch(5))))
        store.outbox.put(make_reading())
    with closing(open_store(path)) as store:
        assert store.outbox.stats().rows == accepted - 5 + 1


def test_a_transaction_is_all_or_nothing(path):
    with closing(open_store(path)) as store:

        def fail():
            with store.transaction():
                store.journal.admit([make_entry("a")])
                store.outbox.put(make_reading())
                raise KeyError("half way")

        with pytest.raises(KeyError):
            fail()
        assert store.journal.known(["a"]) == {}
        assert store.journal.is_empty()
        assert store.outbox.stats().accepted == 0
        store.outbox.put(make_reading())
        assert [each.key for each in store.outbox.next_batch(5)] == [1]


def test_a_part_of_a_transaction_can_fail_alone(path):
    with closing(open_store(path)) as store:
        with store.transaction():
            store.journal.admit([make_entry("a")])
            with pytest.raises(StorageError, match="cannot be stored"):
                store.attempt(lambda: store.journal.put_setting("lone surrogate", "\ud800"))
            store.attempt(lambda: store.journal.put_setting("good", "1"))
        assert store.journal.setting("good") == "1"
        assert set(store.journal.known(["a"])) == {"a"}


def test_a_file_size_limit_of_the_system_is_an_error_with_a_fix_and_loses_nothing_that_was_accepted(path):
    program = """
        import resource, sys
        from pathlib import Path
        from agent.adapters.sqlite_store import SqliteStore
        from agent.errors import StorageError
        from tests.factories import make_reading
        from tests.fakes import FakeClock

        store = SqliteStore(Path(sys.argv[1]), clock=FakeClock())
        store.outbox.put(make_reading())
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        accepted = 1
        try:
            for _ in range(5000):
                store.outbox.put(make_reading({f"reading_{n}": n for n in range(20)}))
                accepted += 1
        except StorageError as error:
            print(accepted, error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[4],
    )
    accepted, _, text = done.stdout.partition(" ")
    assert "look into dmesg" in text or "free space" in text, done
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    with closing(open_store(path)) as store:
        assert store.outbox.stats().rows == int(accepted)


class TestBootTimes:
    TIME = BootTime(1000.0, 1001.0, 5.0)

    def open(self, path, clock) -> SqliteStore:
        return SqliteStore(path, clock=clock, trusts_wall=False)

    def test_they_survive_as_long_as_something_is_of_that_boot(self, path):
        clock = FakeClock()
        with closing(self.open(path, clock)) as store:
            store.boots.learn("boot-1", self.TIME)
            store.boots.learn("boot-0", self.TIME)
            store.outbox.put(make_reading(at=clock.now()))
            clock.reboot("boot-2")
        with closing(self.open(path, clock)) as store:
            assert store.boots.known() == {"boot-1": self.TIME}
            store.outbox.settle(SendOutcome(tuple(each.key for each in store.outbox.next_batch(9))))
            store.outbox.put(make_reading(at=clock.now()))
        with closing(self.open(path, clock)) as store:
            assert store.boots.known() == {}

    def test_a_better_one_counts_at_once_and_is_written_with_the_next_commit(self, path):
        better = BootTime(1000.2, 1000.7, 9.0)
        with closing(self.open(path, FakeClock())) as store:
            store.boots.learn("boot-1", self.TIME)
            written = path.with_name(f"{path.name}-wal").stat().st_size
            store.boots.learn("boot-1", better, rides=True)
            assert store.boots.known() == {"boot-1": better}
            assert path.with_name(f"{path.name}-wal").stat().st_size == written
            store.journal.put_setting("a", "1")
        with closing(self.open(path, FakeClock())) as store:
            assert store.boots.known() == {"boot-1": better}

    def test_a_better_one_whose_commit_failed_goes_with_the_one_after(self, path):
        better = BootTime(1000.2, 1000.7, 9.0)
        with closing(self.open(path, FakeClock())) as store:
            store.boots.learn("boot-1", self.TIME)
            store.boots.learn("boot-1", better, rides=True)
            with pytest.raises(RuntimeError), store.transaction():
                raise RuntimeError
            store.journal.put_setting("a", "1")
        with closing(self.open(path, FakeClock())) as store:
            assert store.boots.known() == {"boot-1": better}

    def test_a_damaged_file_gives_them_back(self, path):
        fill(path)
        with closing(self.open(path, FakeClock())) as store:
            store.boots.learn("boot-1", self.TIME)
        with path.open("r+b") as file:
            file.seek(20 * PAGE_BYTES)
            file.write(b"\xa5" * PAGE_BYTES)
        with closing(self.open(path, FakeClock())) as store:
            assert store.incidents
            assert store.boots.known() == {"boot-1": self.TIME}

    def test_no_reading_is_too_old_while_nobody_knows_the_time_of_its_boot_or_of_this_one(self, path):
        clock = FakeClock()
        with closing(self.open(path, clock)) as store:
            store.outbox.put(make_reading({"n": 1}, at=clock.now()))
            clock.reboot("boot-2")
            clock.set_wall(START_WALL_S + 50 * 366 * 86_400.0)
            store.outbox.put(make_reading({"n": 2}, at=clock.now()))
            assert store.outbox.stats().rows == 2
            store.boots.learn("boot-2", BootTime(START_WALL_S, START_WALL_S, 10.0))
            store.outbox.put(make_reading({"n": 3}, at=clock.now()))
            assert store.outbox.stats().rows == 3
            store.boots.learn("boot-1", BootTime(START_WALL_S - 8 * 86_400.0, START_WALL_S - 8 * 86_400.0, 10.0))
            store.outbox.put(make_reading({"n": 4}, at=clock.now()))
            # And behind them, as backlog, the record of the one that went.
            assert [each.reading.values.get("n") for each in store.outbox.next_batch(9)] == [2, 3, 4, None]

    def test_a_command_of_a_boot_without_a_time_is_forgotten_a_full_span_after_it_could_be_dated(self, path):
        clock = FakeClock(wall_s=0.0)
        with closing(self.open(path, clock)) as store:
            store.journal.admit([make_entry("old", CommandState.REPORTED, received=clock.now())])
            clock.reboot("boot-2")
            store.boots.learn("boot-2", BootTime(START_WALL_S, START_WALL_S, 10.0))
            assert store.journal.forget([], START_WALL_S) == 0
            clock.advance(86_400.0)
            assert store.journal.forget([], START_WALL_S + 43_200.0) == 1

    def test_the_status_counts_what_cannot_be_dated(self, path):
        clock = FakeClock()
        with closing(self.open(path, clock)) as store:
            store.outbox.put(make_reading(at=clock.now()))
            clock.reboot("boot-2")
            store.outbox.put(make_reading(at=clock.now()))
            store.boots.learn("boot-2", self.TIME)
        status = read_status(path)
        assert status is not None
        assert status.undated == 1
