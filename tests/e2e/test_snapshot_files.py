"""Snapshots of the service as a process: begun with, left at the end, and killed while one is loaded."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

PROGRAM = [sys.executable, "-c", "from simulator.service.cli import service_command; service_command()"]
KEYS = {"x-api-key": "mk_test", "x-secret-key": "msk_test"}
GIVEN = {
    "FLEET_SIMULATOR_API_KEY": "mk_test",
    "FLEET_SIMULATOR_SECRET_KEY": "msk_test",
    "FLEET_SIMULATOR_PORT": "0",
    "FLEET_SIMULATOR_RATE_LIMIT": "0",
    "FLEET_SIMULATOR_ACCESS_LOG": "off",
}
READINGS = 5_000
WAITING = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'device-service' AND wait_event_type = 'Lock'
"""
LARGE = 40
"""Products with much about them: more than SQLite keeps in memory until it commits."""
LARGE_BYTES = 200_000
pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **GIVEN},
    )


@contextmanager
def service(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    process = start(*arguments)
    try:
        url = ""
        for line in process.stdout or ():
            if line.startswith("service "):
                url = line.split()[1]
            if line.startswith("Ctrl-C"):
                break
        else:
            raise AssertionError(process.stderr.read() if process.stderr else "")
        with httpx.Client(base_url=url, headers=KEYS, trust_env=False, timeout=300) as http:
            yield process, http
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str) -> str:
    process = start(*arguments)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    assert "Traceback" not in errors
    return errors


def products(http: httpx.Client) -> list[str]:
    return [one["name"] for one in http.get("/products").json()["data"]]


def test_a_service_leaves_its_state_at_the_end_and_another_one_begins_with_it(tmp_path):
    file = tmp_path / "state.jsonl"
    with service("--snapshot-on-exit", str(file)) as (process, http):
        assert http.post("/products", json={"name": "first"}).status_code == 201
        assert http.put("/_emulator/clock", json={"mode": "frozen", "time": "2027-01-01T00:00:00Z"}).status_code == 200
        assert not file.exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    again = ("--snapshot", str(file), "--snapshot-on-exit", str(file))
    with service(*again, "--data", str(tmp_path / "data")) as (process, http):
        assert products(http) == ["first"]
        assert http.get("/_emulator/clock").json()["time"] == "2027-01-01T00:00:00.000Z"
        assert http.post("/products", json={"name": "second"}).status_code == 201
        assert file.read_bytes() == before
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "state.jsonl"]
    with service("--snapshot", str(file)) as (_, http):
        assert products(http) == ["first", "second"]
    said = refused("--snapshot", str(file), "--data", str(tmp_path / "data"))
    assert "there is a state already" in said
    assert "leave --snapshot out" in said
    with service("--data", str(tmp_path / "data")) as (_, http):
        assert products(http) == ["first", "second"], "the refused start has changed nothing"


def test_a_start_with_a_file_that_is_no_snapshot_is_refused_and_leaves_no_state(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"format": "something else"}\n')
    data = ("--data", str(tmp_path / "data"))
    assert "format is not 'device-service-snapshot'" in refused("--snapshot", str(bad), *data)
    assert "cannot be read: No such file" in refused("--snapshot", str(tmp_path / "none"), *data)
    assert "there is no folder" in refused("--snapshot-on-exit", str(tmp_path / "no" / "x"), *data)
    with service(*data) as (_, http):
        assert products(http) == []


def test_a_snapshot_that_cannot_be_written_at_the_end_is_said_and_the_old_one_stays(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    file = place / "state.jsonl"
    with service("--snapshot-on-exit", str(file)) as (process, http):
        assert http.post("/products", json={"name": "first"}).status_code == 201
        file.write_text("what was there before")
        (place / ".state.jsonl.part").mkdir()  # nothing can be written there, not even by root
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "--snapshot-on-exit" in errors
    assert "Traceback" not in errors
    assert file.read_text() == "what was there before"


def fill(http: httpx.Client, name: str) -> None:
    """A state that takes a while to load, all of it with one name."""
    for _ in range(LARGE):
        product = http.post("/products", json={"name": name, "description": name * (LARGE_BYTES // 3)}).json()[
            "product_id"
        ]
    body = {"user_id": name, "product_id": product, "device_identifier": name}
    device = http.post("/onboarding/device", json=body).json()["device_id"]
    batch = [{"device_id": device, "sensor_data": {name: number}} for number in range(500)]
    for _ in range(READINGS // 500):
        assert http.post("/sensor-data", json=batch).status_code == 200


def state(http: httpx.Client) -> tuple[str, int, int]:
    """Its name, where everything in it has the same one, with the numbers of devices and readings."""
    (name,) = set(products(http))
    devices = http.get("/devices").json()["data"]
    totals = http.post("/_emulator/snapshots", json={"name": f"look-{os.urandom(4).hex()}"}).json()
    lines = Path(totals["file"]).read_text().splitlines()
    readings = [json.loads(line)["row"]["sensor_data"] for line in lines if line.startswith('{"table":"readings"')]
    assert {device["user_id"] for device in devices} == {name}
    assert {next(iter(json.loads(one))) for one in readings} == {name}
    Path(totals["file"]).unlink()
    return name, len(devices), len(readings)


def begin(http: httpx.Client) -> None:
    """Snapshots ``new`` and ``old``, and the state of the latter."""
    fill(http, "new")
    assert http.post("/_emulator/snapshots", json={"name": "new"}).status_code == 201
    assert http.post("/_emulator/reset").status_code == 204
    fill(http, "old")
    assert http.post("/_emulator/snapshots", json={"name": "old"}).status_code == 201


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0


def wait_until(condition: Callable[[], bool]) -> None:
    pause, until_s = threading.Event(), time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until_s
        pause.wait(0.001)


def load(http: httpx.Client, name: str) -> None:
    with suppress(httpx.TransportError):
        http.post(f"/_emulator/snapshots/{name}/load")


@pytest.fixture(params=["sqlite", "postgresql"])
def stored(request, tmp_path) -> Iterator[tuple[str, ...]]:
    """Arguments of a service whose state outlives it."""
    if request.param == "sqlite":
        yield ("--data", str(tmp_path))
        return
    with request.getfixturevalue("postgresql").database() as url:
        yield ("--database", url, "--snapshots", str(tmp_path))


@contextmanager
def killed_while_loading(arguments: tuple[str, ...], after_s: float) -> Iterator[str]:
    """A load of the state that is not there, and ``kill -9`` in it; the name of the one that was."""
    with service(*arguments) as (process, http):
        there, *counts = state(http)
        assert counts == [1, READINGS]
        loading = threading.Thread(target=load, args=(http, "new" if there == "old" else "old"))
        loading.start()
        yield there
        loading.join(after_s)
        process.kill()
        process.wait(60)
        loading.join(60)


def test_a_kill_in_a_load_leaves_the_old_or_the_new_state_and_it_goes_on(stored, tmp_path):
    with service(*stored) as (process, http):
        begin(http)
        began = time.monotonic()
        assert http.post("/_emulator/snapshots/new/load").status_code == 200
        whole_s = time.monotonic() - began
        assert http.post("/_emulator/snapshots/old/load").status_code == 200
        end(process)
    with meeting_the_load(stored, tmp_path) as met, killed_while_loading(stored, 0):
        met()
    with killed_while_loading(stored, 0.7 * whole_s) as there:
        # SQLite cannot be held in the middle of its writing: on a busy machine the commit may win.
        assert there in {"old", *(["new"] if stored[0] == "--data" else [])}
    with service(*stored) as (process, http):
        assert state(http)[1:] == (1, READINGS)
        for name in ("new", "old"):
            assert http.post(f"/_emulator/snapshots/{name}/load").status_code == 200
            assert state(http) == (name, 1, READINGS)
        end(process)


@contextmanager
def meeting_the_load(arguments: tuple[str, ...], folder: Path) -> Iterator[Callable[[], None]]:
    """What waits until much of the new state is written and not committed."""
    if arguments[0] == "--data":
        log = folder / "service.db-wal"
        yield lambda: wait_until(lambda: log.exists() and log.stat().st_size > LARGE * LARGE_BYTES / 2)
        return
    # A row of the new state that another transaction has stored and not committed: behind the readings the load waits
    # for what becomes of it.
    lines = (folder / "new.jsonl").read_text().splitlines()
    row = next(json.loads(line)["row"] for line in lines if line.startswith('{"table":"database_tables"'))
    with psycopg.connect(arguments[1]) as holding, psycopg.connect(arguments[1], autocommit=True) as looking:
        columns = ", ".join(f'"{name}"' for name in row)
        values = ", ".join(["%s"] * len(row))
        holding.execute(f"INSERT INTO database_tables ({columns}) VALUES ({values})", list(row.values()))
        yield lambda: wait_until(lambda: bool(looking.execute(WAITING).fetchall()))
