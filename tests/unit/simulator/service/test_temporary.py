from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time

import pytest

from agent.errors import ConfigurationError
from simulator.service.storage.database import Database
from simulator.service.storage.temporary import NEW_S, PREFIX, TemporaryFolder

WAITING_SERVICE = """
import sys
from simulator.service.storage.database import Database
database = Database()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def below(tmp_path, monkeypatch):
    """What takes the place of the system's temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _grow_old(folder):
    old_s = time.time() - NEW_S - 1
    os.utime(folder, (old_s, old_s))


def test_a_service_without_a_folder_leaves_nothing_behind_and_lets_nobody_else_look(below):
    database = Database()
    [folder] = below.iterdir()
    assert folder.name.startswith(PREFIX)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 0  # nothing of it outlives a power cut
    assert "temporary" in database.where
    database.close()
    assert list(below.iterdir()) == []


def test_what_a_killed_service_left_is_removed_by_the_next_one(below):
    environment = {**os.environ, "TMPDIR": str(below)}
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING_SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    try:
        assert process.stdout.readline()
        [left] = below.iterdir()
        _grow_old(left)
        with_it = TemporaryFolder()
        assert left.exists()  # its service still runs
        with_it.close()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    _grow_old(left)
    TemporaryFolder().close()
    assert list(below.iterdir()) == []


def test_a_folder_that_has_only_just_been_made_and_files_of_others_stay(below):
    new, other, file = below / f"{PREFIX}new", below / "other", below / f"{PREFIX}file"
    new.mkdir()
    other.mkdir()
    file.write_text("")
    (below / "target").mkdir()
    link = below / f"{PREFIX}link"
    link.symlink_to(below / "target")
    for path in (other, file, below / "target"):
        _grow_old(path)
    TemporaryFolder().close()
    assert {path.name for path in below.iterdir()} == {new.name, other.name, file.name, "target", link.name}


def test_without_a_place_for_it_the_error_says_what_to_give(below):
    tempfile.tempdir = str(below / "absent")
    with pytest.raises(ConfigurationError, match="set TMPDIR, or give a folder with --data"):
        Database()


def test_the_folder_is_removed_when_the_database_cannot_be_opened(below, monkeypatch):
    def fail(_connection):
        raise ConfigurationError(["no"])

    monkeypatch.setattr("simulator.service.storage.database.migrate", fail)
    with pytest.raises(ConfigurationError):
        Database()
    assert list(below.iterdir()) == []
