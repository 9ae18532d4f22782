"""A run on the two nodes of a Ray cluster on this machine, as its user starts it; without Ray nothing is collected."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("ray")

from agent.wire.secret import Secret
from simulator.children import program_path
from simulator.exit_codes import ExitCode
from simulator.fleet.run.crew import PREFIX
from simulator.keys import write_secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.support.cluster_running import running_cluster

API_KEY, SECRET_KEY = "mk_cluster", "msk_cluster_0123456789"
DEVICES = 20
RECORDED = {"kind": "csv", "file": "day.csv", "column": "t", "every_s": 1}
EACH_SECOND = {"telemetry": {"every_s": 1}, "poll": {"every_s": 1}}
SCENARIO: dict[str, Any] = {
    "scenario": "cluster",
    "workers": 4,
    "target": {"transport": "http_poll", "connections": 16},
    "fleet": {
        "devices": DEVICES,
        "models": [{"name": "r", "signals": {"temperature": RECORDED}, **EACH_SECOND}],
    },
    "commands": [{"rate_per_s": 2, "payload": {"command": "ping"}}],
    "phases": [{"name": "hold", "kind": "hold", "duration_s": 12}],
    "drain_s": 60,
    "thresholds": ["audit.lost == 0"],
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where nodes and workers write: short, since sockets are in it."""
    with (
        tempfile.TemporaryDirectory(prefix="fc-", ignore_cleanup_errors=True) as name,
        pytest.MonkeyPatch.context() as env,
    ):
        env.setenv("TMPDIR", name)
        yield Path(name)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a cluster and of a service."""
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with running_cluster(2, 2) as address, RunningService(config) as service:
        yield address, service.base_url


@pytest.fixture
def start(cluster, tmp_path) -> Callable[[], subprocess.Popen[bytes]]:
    """Start a run on the cluster; its folder is ``tmp_path/run``."""

    def start() -> subprocess.Popen[bytes]:
        address, base_url = cluster
        secret = write_secret(tmp_path / "secret", SECRET_KEY)
        (tmp_path / "day.csv").write_text("t\n" + "\n".join(f"{value}.5" for value in range(60)))
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(SCENARIO))
        target = ["--base-url", base_url, "--api-key", API_KEY, "--secret-key-file", secret, "--cluster", address]
        run = [program_path("fleet-simulator"), "run", tmp_path / "s.yaml", "--out", tmp_path / "run", *target]
        with (tmp_path / "log").open("wb") as log:
            return subprocess.Popen(run, stdout=log, stderr=log)

    return start


def worker_processes(folder: Path) -> list[int]:
    """The processes that make the load, on whichever node of these tests."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = b"spawn_main" in (path / "cmdline").read_bytes()
            if is_worker and f"TMPDIR={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def ended(process: subprocess.Popen[bytes], tmp_path: Path) -> tuple[int, dict[str, Any]]:
    code = process.wait(300)
    return code, json.loads((tmp_path / "run" / "run.json").read_text())


def wait(is_so: Callable[[], bool], process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    deadline_s = time.monotonic() + 180
    while not is_so():
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def check_nothing_is_left(folder: Path) -> None:
    deadline_s = time.monotonic() + 60
    while worker_processes(folder) or list(folder.glob(f"{PREFIX}*")):
        assert time.monotonic() < deadline_s, "a process of a worker, or a folder with its keys, is left"
        time.sleep(0.1)


def test_a_run_on_two_nodes_is_audited_whole(start, folder, tmp_path):
    code, record = ended(start(), tmp_path)
    readings = record["audit"]["readings"]
    assert record["audit"]["complete"], record["verdict"]
    assert readings["sent"] == readings["accepted"] == readings["stored"] > 5 * DEVICES
    assert record["gaps"] == []
    assert code == ExitCode.GOOD or record["reasons"]["saturated"], record["verdict"]
    assert record["machine"].count(" with workers ") == 2
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as database:
        assert database.execute("SELECT count(*) FROM ledgers WHERE ended").fetchone() == (4,)
    check_nothing_is_left(folder)


def test_a_worker_that_is_killed_is_a_declared_gap_and_the_others_go_on(start, folder, tmp_path):
    process = start()
    seconds = tmp_path / "run" / "seconds.jsonl"
    wait(lambda: seconds.exists() and seconds.read_bytes().count(b"\n") >= 3, process, tmp_path)
    workers = worker_processes(folder)
    assert len(workers) == 4
    assert not any("_raylet" in Path(f"/proc/{pid}/maps").read_text() for pid in workers), "Ray is in a worker"
    os.kill(min(workers), signal.SIGKILL)
    code, record = ended(process, tmp_path)
    assert (code, record["verdict"]["word"]) == (ExitCode.INCONCLUSIVE, "inconclusive"), record["verdict"]
    (gap,) = record["gaps"]
    assert "signal 9" in gap["reason"]
    readings = record["audit"]["readings"]
    assert readings["lost"] == readings["doubled"] == 0 < readings["sent"]
    check_nothing_is_left(folder)


def test_a_run_that_is_killed_leaves_no_worker_and_no_key(start, folder, tmp_path):
    process = start()
    wait(lambda: len(worker_processes(folder)) == 4, process, tmp_path)
    process.kill()
    process.wait()
    check_nothing_is_left(folder)
