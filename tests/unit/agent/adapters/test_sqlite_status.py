"""The store seen from outside: while the agent runs, after it was killed, after it stopped; and nothing is written."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.status import StoreStatus, read_status
from agent.core.outbox import Bounds
from agent.core.values import CommandState, SendOutcome
from agent.errors import StorageError
from tests.factories import make_entry, make_moment, make_outcome, make_reading
from tests.fakes import FakeClock


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state" / "agent.db"


@pytest.fixture
def store(path):
    path.parent.mkdir()
    with closing(SqliteStore(path, clock=FakeClock(), bounds=Bounds(max_rows=4))) as opened:
        opened.journal.admit([make_entry("a"), make_entry("b"), make_entry("old", CommandState.SKIPPED)])
        opened.journal.start("a", make_moment(1001.0))
        opened.journal.finish("a", make_outcome("failed", error="timeout: too slow"), make_moment(1002.0))
        opened.journal.put_setting("interval.board", "30")
        for n in range(6):
            opened.outbox.put(make_reading({"n": n}))
        first, second = opened.outbox.next_batch(2)
        opened.outbox.settle(SendOutcome(delivered=(first.key,), refused={second.key: "validation_error: no"}))
        yield opened


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in directory.iterdir()}


def check(status: StoreStatus | None) -> None:
    assert status is not None
    assert status.commands == {"finished": 1, "received": 1, "skipped": 1}
    assert [line.id for line in status.last_commands] == ["b", "a"]
    line = status.last_commands[1]
    assert (line.handler, line.state, line.outcome, line.error) == ("ping", "finished", "failed", "timeout: too slow")
    assert (status.outbox.rows, status.outbox.accepted, status.outbox.delivered) == (3, 7, 1)
    assert (status.outbox.dropped, status.outbox.set_aside) == (2, 1)
    (refused,) = status.set_aside
    assert (refused.reason, refused.values) == ("validation_error: no", '{"n":3}')
    assert status.untold_gaps == 1
    assert status.disk_bytes >= status.file_bytes
    assert [(gap.reason, gap.rows) for gap in status.gaps] == [("rows", 2)]
    assert status.settings == {"interval.board": "30"}
    assert status.incidents == ()
    assert status.file_bytes > 4096


def test_while_the_agent_runs_and_not_a_byte_or_file_changes(store, path):
    before = snapshot(path.parent)
    check(read_status(path))
    assert snapshot(path.parent) == before


def test_it_agrees_with_what_the_running_store_says(store, path):
    status = read_status(path)
    assert status is not None
    assert status.outbox == store.outbox.stats()


def test_after_the_agent_was_killed(store, path, tmp_path):
    # What a killed process leaves: all files as they are, and nobody holds them.
    shutil.copytree(path.parent, tmp_path / "killed")
    check(read_status(tmp_path / "killed" / "agent.db"))
    with closing(SqliteStore(tmp_path / "killed" / "agent.db", clock=FakeClock())) as again:
        assert again.journal.known(["b"])["b"].state == CommandState.RECEIVED


def test_after_the_agent_stopped_and_not_a_byte_or_file_changes(store, path):
    store.close()
    before = snapshot(path.parent)
    check(read_status(path))
    assert snapshot(path.parent) == before


def test_where_no_agent_ever_ran_there_is_nothing(tmp_path):
    assert read_status(tmp_path / "agent.db") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "agent.db").touch()
    assert read_status(tmp_path / "agent.db") is None


def test_a_damaged_file_is_one_sentence(tmp_path):
    (tmp_path / "agent.db").write_bytes(os.urandom(5000))
    with pytest.raises(StorageError, match="its content is damaged"):
        read_status(tmp_path / "agent.db")


def test_a_newer_file_is_one_sentence(store, path):
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE schema_version SET version = 99")
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="a newer device-agent"):
        read_status(path)


def test_an_incident_is_shown(tmp_path):
    (tmp_path / "agent.db").write_bytes(os.urandom(5000))
    with closing(SqliteStore(tmp_path / "agent.db", clock=FakeClock())):
        pass
    status = read_status(tmp_path / "agent.db")
    assert status is not None
    assert "was damaged" in status.incidents[0]


def test_results_that_are_put_aside_are_told_with_their_reasons(path, store):
    store.journal.put_aside({"a": "405 no such place"})
    status = read_status(path)
    assert status is not None
    assert status.commands["put_aside"] == 1
    assert (status.results.put_aside, status.results.given_up) == (1, 0)
    (aside,) = status.put_aside
    assert (aside.id, aside.handler, aside.outcome, aside.reason) == ("a", "ping", "failed", "405 no such place")
    assert aside.finished_wall_s == make_moment(1002.0).wall_s
