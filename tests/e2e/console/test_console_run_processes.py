"""Runs that the console started, when their service ends: in order, by a signal that nobody can catch, and again."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from simulator.children import ChildProcess, program_path
from tests.ports import free_port

pytestmark = pytest.mark.long

KEYS = {
    "FLEET_SIMULATOR_SERVICE_API_KEY": "mk_console_runs",
    "FLEET_SIMULATOR_SERVICE_SECRET_KEY": "msk_console_runs_01",
}
SCENARIO = {
    "scenario": "endless",
    "target": {"transport": "http_poll"},
    "fleet": {"devices": 3, "models": [{"telemetry": {"every_s": 1}}]},
    "phases": [{"name": "hold", "kind": "hold", "duration_s": "1h"}],
    "drain_s": 1,
}
_WAIT_S = 90.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "endless.yaml").write_text(yaml.safe_dump(SCENARIO))
    return tmp_path


@contextlib.contextmanager
def service(place: Path) -> Iterator[tuple[ChildProcess, httpx.Client]]:
    port = free_port()
    child = ChildProcess("service", place / "service.log")
    words = ["service", "--port", str(port), "--rate-limit", "0", "--data", str(place / "data")]
    words += ["--runs", str(place / "runs"), "--scenarios", str(place / "scenarios"), "--log-level", "warning"]
    child.start([str(program_path("fleet-simulator")), *words], KEYS)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as http:
        try:
            child.wait_until(lambda: is_up(http), "it answered", _WAIT_S)
            yield child, http
        finally:
            child.end()


def is_up(http: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get("/_emulator/health").status_code == 200
    return False


def start(http: httpx.Client, place: Path) -> str:
    answer = http.post("/_emulator/runs", json={"scenario": "endless.yaml"})
    assert answer.status_code == 201, answer.text
    run_id = str(answer.json()["id"])
    until(lambda: (place / "runs" / run_id / "seconds.jsonl").stat().st_size > 0)
    return run_id


def until(holds: Any) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s
        os.sched_yield()


def programs_of(run_id: str) -> list[str]:
    """The processes that have the run's folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if run_id.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_a_run_ends_with_its_service_and_is_shown_by_the_next_one(place: Path, signal: str) -> None:
    with service(place) as (child, http):
        run_id = start(http, place)
        assert programs_of(run_id)
        if signal == "SIGKILL":
            child.kill()
        else:
            assert child.end(60) == 0
            assert not programs_of(run_id)
    until(lambda: not programs_of(run_id))
    with service(place) as (_, http):
        run = http.get(f"/_emulator/runs/{run_id}").json()
        assert run["state"] in {"ended", "killed"}
        assert not run["started_here"]
        if run["state"] == "ended":
            assert run["verdict"]["word"] in {"interrupted", "unreachable"}
        made = http.post(f"/_emulator/runs/{run_id}/report", json={})
        assert made.status_code == 200, made.text
        assert http.get(f"/_emulator/runs/{run_id}/report").status_code == 200


def test_no_secret_is_in_a_command_line_or_in_the_folder_of_a_run(place: Path) -> None:
    secret = KEYS["FLEET_SIMULATOR_SERVICE_SECRET_KEY"].encode()
    with service(place) as (_, http):
        run_id = start(http, place)
        for process in programs_of(run_id):
            with contextlib.suppress(OSError):
                assert secret not in Path("/proc", process, "cmdline").read_bytes()
                assert secret not in Path("/proc", process, "environ").read_bytes()
        assert http.post(f"/_emulator/runs/{run_id}/stop", json={}).json()["state"] == "stopping"
        assert http.post(f"/_emulator/runs/{run_id}/stop", json={"at_once": True}).status_code in {200, 409}
        until(lambda: http.get(f"/_emulator/runs/{run_id}").json()["state"] not in {"running", "stopping"})
    for path in (place / "runs").rglob("*"):
        assert path.is_dir() or secret not in path.read_bytes(), path
