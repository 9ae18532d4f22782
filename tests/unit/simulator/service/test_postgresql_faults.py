"""PostgreSQL that fails: a full disk, a commit whose fate nobody knows, a server that falls silent."""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from simulator.service import service as service_module
from tests.conftest import ON_CI
from tests.postgresql import Cluster
from tests.service_running import Bench, running
from tests.unit.simulator.service.tcp_proxy import proxy

DISK_BYTES = 24 * 1024 * 1024
"""A new database takes a third of it."""
_MAY_MOUNT = 1 << 21
"""CAP_SYS_ADMIN in the set of capabilities, see capabilities(7)."""


@pytest.fixture
def url(postgresql):
    with postgresql.database() as url:
        yield url


def count(url: str, table: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


# --- a full disk ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(postgresql) -> Iterator[Path]:
    """A file system of its own that the server's user may write to."""
    capabilities = next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)
    if not int(capabilities.split()[1], 16) & _MAY_MOUNT:
        pytest.skip("mounting a small file system needs root (CAP_SYS_ADMIN)")
    folder = Path(tempfile.mkdtemp(prefix="pg-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0777", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        if done.returncode:
            reason = f"a small file system cannot be mounted: {done.stderr.strip()}"
            pytest.fail(reason) if ON_CI else pytest.skip(reason)
        try:
            space = folder / "space"
            space.mkdir()
            if postgresql.as_user:
                shutil.chown(space, postgresql.as_user[2])
            yield space
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
    finally:
        folder.rmdir()


@contextlib.contextmanager
def database_on(cluster: Cluster, disk: Path) -> Iterator[str]:
    """The URL of a database whose tables are there; its log of changes is where the server's is."""
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        try:
            connection.execute("CREATE DATABASE on_small TABLESPACE small STRATEGY FILE_COPY TEMPLATE template0")
            yield cluster.url("on_small")
        finally:
            connection.execute("DROP DATABASE IF EXISTS on_small WITH (FORCE)")
            connection.execute("DROP TABLESPACE small")


def fill(disk: Path) -> Path:
    """Take all the room that is left."""
    filler = disk.parent / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return filler


def test_a_full_disk_is_503_stores_nothing_and_is_over_when_there_is_room(postgresql, small_disk, caplog):
    with database_on(postgresql, small_disk) as url, running(database=url) as bench:
        device_id = bench.device()
        large = {f"reading-{i}": i for i in range(2000)}
        assert bench.post_reading(device_id, "before", sensor_data=large).status_code == 201
        filler = fill(small_disk)
        answers = [bench.post_reading(device_id, f"{i}", sensor_data=large) for i in range(9)]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert refused
        assert {answer.json()["error"] for answer in refused} == {"storage_unavailable"}
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        assert bench.http.get("/products").status_code == 200
        stored = len(answers) - len(refused) + 1
        assert (count(url, "readings"), count(url, "stored_answers")) == (stored, stored)
        filler.unlink()
        again = [bench.post_reading(device_id, f"{i}", sensor_data=large) for i in range(9)]
        assert {answer.status_code for answer in again} == {201}
        assert (count(url, "readings"), count(url, "stored_answers")) == (10, 10)
    assert "No space left on device" in caplog.text
    assert "Traceback" not in caplog.text


FULL = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$
"""


def test_a_server_that_says_that_its_disk_is_full_is_503_and_one_line_in_the_log(url, caplog):
    with running(database=url) as bench, psycopg.connect(url, autocommit=True) as connection:
        device_id = bench.device()
        connection.execute(FULL)
        # At the end of the row's way: the answer, which is stored after the reading, fails, and both must be gone.
        connection.execute("CREATE TRIGGER full_disk AFTER INSERT ON stored_answers EXECUTE FUNCTION refuse()")
        for _ in range(20):
            answer = bench.post_reading(device_id, "key")
            assert (answer.status_code, answer.json()["error"]) == (503, "storage_unavailable")
        assert (count(url, "readings"), count(url, "stored_answers")) == (0, 0)
        connection.execute("DROP TRIGGER full_disk ON stored_answers")
        assert bench.post_reading(device_id, "key").status_code == 201
        assert (count(url, "readings"), count(url, "stored_answers")) == (1, 1)
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.getMessage() == ("a group of writes was rolled back: could not extend file: No space left on device")
    assert line.exc_info is None


# --- a commit whose fate is in doubt ----------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_that_is_lost_in_the_commit_is_503_and_the_same_key_again_stores_once(
    postgresql, url, caplog, committed
):
    with proxy(postgresql.port) as between, running(database=between.through(url)) as bench:
        device_id = bench.device()
        between.cut_at_commit(b"the_one", delivered=committed)
        answer = bench.post_reading(device_id, "key", sensor_data={"the_one": 1})
        assert (answer.status_code, answer.json()["error"]) == (503, "storage_unavailable")
        assert "stored as a whole or not at all" in answer.json()["message"]
        assert "same Idempotency-Key" in answer.json()["message"]
        assert answer.headers["retry-after"] == "1"
        again = bench.post_reading(device_id, "key", sensor_data={"the_one": 1})
        assert again.status_code == 201
        assert ("idempotent-replayed" in again.headers) is committed
        assert [row["sensor_data"] for row in bench.http.get("/sensor-data").json()["data"]] == [{"the_one": 1}]
    assert "lost during a commit" in caplog.text


# --- a server that falls silent ---------------------------------------------------------------------------------


def test_a_silent_database_holds_no_other_request(postgresql, url):
    with (
        proxy(postgresql.port) as between,
        running(database=between.through(url)) as bench,
        ThreadPoolExecutor(2) as pool,
    ):
        device_id = bench.device()
        assert bench.poll(device_id).status_code == 200
        between.fall_silent()
        try:
            waiting = [pool.submit(bench.poll, device_id, limit=100), pool.submit(ask_with_token, bench)]
            assert between.met_silence.wait(60)
            for _ in range(5):
                assert bench.http.get("/.well-known/device-service").status_code == 200
                assert bench.poll(device_id).status_code == 200  # nothing has changed since the last one
            assert not any(future.done() for future in waiting)
        finally:
            between.speak_again()
        assert [future.result().status_code for future in waiting] == [200, 401]


def ask_with_token(bench: Bench):
    request = bench.http.build_request("GET", "/products", headers={"authorization": "Bearer nobodys"})
    del request.headers["x-api-key"], request.headers["x-secret-key"]
    return bench.http.send(request)


def test_a_silence_ends_as_503_and_afterwards_it_goes_on(postgresql, url, monkeypatch, caplog):
    with proxy(postgresql.port) as between, running(database=between.through(url)) as bench:
        device_id = bench.device()
        assert bench.poll(device_id).status_code == 200
        monkeypatch.setattr(service_module, "LOOK_UP_S", 0.05)
        monkeypatch.setattr(service_module, "READ_S", 0.05)
        between.fall_silent()
        try:
            for answer in (bench.poll(device_id, limit=100), bench.http.get("/products")):
                assert (answer.status_code, answer.json()["error"]) == (503, "storage_unavailable")
                assert "no answer within 0.05 s" in answer.json()["message"]
        finally:
            between.speak_again()
        monkeypatch.undo()
        assert bench.poll(device_id).status_code == 200
    assert "Traceback" not in caplog.text
