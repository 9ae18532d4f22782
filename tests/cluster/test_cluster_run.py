"""A run on the nodes of a Ray cluster, as its user starts it; nodes, workers and the run itself are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.wire.secret import Secret
from simulator.exit_codes import ExitCode
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.cluster_running import RunningCluster, running_cluster

API_KEY, SECRET_KEY = "mk_cluster", "msk_cluster_0123456789"
LEASE_S = 15


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(2, 2) as running:
        yield running


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as running:
        yield running


@pytest.fixture
def start(service, tmp_path) -> Callable[..., subprocess.Popen[str]]:
    """Start ``fleet-simulator run``; its folder is ``tmp_path/NAME``."""

    def start(name: str, address: str | None, prefix: str = "", **changes: Any) -> subprocess.Popen[str]:
        secret = tmp_path / "secret"
        secret.write_text(SECRET_KEY)
        secret.chmod(0o600)
        path = tmp_path / f"{name}.yaml"
        document = {**SCENARIO, **changes}
        # Of each run's own: a run that was killed leaves orders that nobody knows of.
        document["fleet"] = {"identities": {"prefix": f"{prefix or name}-"}, **document["fleet"]}
        path.write_text(yaml.safe_dump(document))
        options = ["--base-url", service.base_url, "--api-key", API_KEY, "--secret-key-file", str(secret)]
        if address is not None:
            options += ["--cluster", address]
        command = [sys.executable, "-m", "simulator.cli", "run", str(path), "--out", str(tmp_path / name), "--json"]
        return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


SCENARIO: dict[str, Any] = {
    "scenario": "cluster",
    "seed": 7,
    "workers": 4,
    "target": {"transport": "http_poll", "pool": 16},
    "fleet": {
        "devices": 40,
        "models": [
            {
                "name": "replayed",
                "telemetry": {"every_s": 1},
                "poll": {"every_s": 1},
                "signals": {"temperature": {"kind": "csv", "file": "day.csv", "column": "t", "every_s": 1}},
            }
        ],
    },
    "commands": [{"rate_per_s": 4, "payload": {"command": "ping"}}],
    "phases": [
        {"name": "ramp", "kind": "ramp", "duration_s": 3},
        {"name": "hold", "kind": "hold", "duration_s": 5},
    ],
    "thresholds": ["audit.lost == 0"],
}


def ended(program: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, record and standard error."""
    output, errors = program.communicate(timeout=240)
    assert output == "" or output.startswith("{"), output[:2000]
    return program.returncode, json.loads(output or "{}"), errors


def worker_processes() -> set[int]:
    """The processes of workers that make load, wherever they were started, of this Python's environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[0] == sys.executable.encode() and any(b"spawn_main" in word for word in words):
                found.add(int(path.parent.name))
    return found


def crew_folders() -> Iterator[Path]:
    return Path(tempfile.gettempdir()).glob("fleet-crew-*")


@contextmanager
def nothing_left(within_s: float) -> Iterator[None]:
    """No process of a worker and no folder of files is there afterwards that was not there before."""
    before = set(crew_folders()), worker_processes()
    yield
    deadline_s = time.monotonic() + within_s
    while (left := (set(crew_folders()) - before[0], worker_processes() - before[1])) != (set(), set()):
        assert time.monotonic() < deadline_s, left
        time.sleep(0.1)


def wait_for_load(folder: Path, program: subprocess.Popen[str], seconds: int = 3) -> None:
    """Return when so many seconds of load are measured."""
    file = folder / "seconds.jsonl"
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s and program.poll() is None:
        if file.exists() and len(file.read_text().splitlines()) >= seconds:
            return
        time.sleep(0.1)
    raise AssertionError(f"no load: {ended(program)}")


def test_a_run_on_several_nodes_is_the_run_on_one_machine(cluster, start, tmp_path):
    (tmp_path / "day.csv").write_text("t\n" + "\n".join(f"{value}.5" for value in range(60)))
    code, here, errors = ended(start("here", None, "same"))
    assert code == ExitCode.GOOD, errors
    with nothing_left(within_s=10):
        code, there, errors = ended(start("there", cluster.address, "same"))
    assert code == ExitCode.GOOD, errors
    assert there["digest"] == here["digest"]
    assert "with worker 0 to 1" in there["machine"]
    assert "with worker 2 to 3" in there["machine"]
    for record, folder in ((here, "here"), (there, "there")):
        readings, commands = record["audit"]["readings"], record["audit"]["commands"]
        assert record["audit"]["complete"]
        assert readings["sent"] == readings["accepted"] == readings["stored"] > 200
        assert readings["lost"] == commands["lost"] == 0
        assert len(list((tmp_path / folder / "audit").glob("worker-*.ledger"))) == 4
    assert here["audit"]["commands"]["sent"] == there["audit"]["commands"]["sent"]
    again = subprocess.run(
        [sys.executable, "-m", "simulator.cli", "report", str(tmp_path / "there")], capture_output=True, check=False
    )
    assert again.returncode == ExitCode.GOOD
    assert SECRET_KEY not in "".join(
        path.read_text(errors="replace") for path in cluster.logs.rglob("*") if path.is_file()
    )


def test_a_worker_that_is_killed_is_a_declared_gap(cluster, start, tmp_path):
    (tmp_path / "day.csv").write_text("t\n1\n2\n")
    before = worker_processes()
    with nothing_left(within_s=10):
        program = start("killed", cluster.address)
        wait_for_load(tmp_path / "killed", program)
        workers = worker_processes() - before
        assert len(workers) == 4
        assert not any("_raylet" in Path(f"/proc/{pid}/maps").read_text() for pid in workers), "Ray is in a worker"
        os.kill(min(workers), signal.SIGKILL)
        code, record, errors = ended(program)
    assert code == ExitCode.INCONCLUSIVE, errors
    (gap,) = record["gaps"]
    assert "signal 9" in gap["reason"]
    assert not record["audit"]["complete"]
    assert record["audit"]["readings"]["lost"] == 0


def test_a_node_that_dies_takes_its_workers_and_the_run_goes_on_to_a_report(start, tmp_path):
    (tmp_path / "day.csv").write_text("t\n1\n2\n")
    with running_cluster(2) as own, nothing_left(within_s=30):
        node = own.add_node(2)
        program = start("node", own.address)
        wait_for_load(tmp_path / "node", program)
        own.kill_node(node)
        code, record, errors = ended(program)
        assert code == ExitCode.INCONCLUSIVE, errors
        assert len({gap["worker"] for gap in record["gaps"]}) == 2
        assert record["audit"]["readings"]["lost"] == 0
        assert (tmp_path / "node" / "report.html").exists()


def test_a_run_that_is_killed_leaves_no_worker_that_goes_on_sending(cluster, start, tmp_path):
    (tmp_path / "day.csv").write_text("t\n1\n2\n")
    with nothing_left(within_s=LEASE_S + 5):
        program = start("orphan", cluster.address, phases=[{"name": "hold", "kind": "hold", "duration_s": "10m"}])
        wait_for_load(tmp_path / "orphan", program)
        program.kill()
        ended(program)


def test_workers_that_nobody_asks_any_more_end_by_themselves_and_the_run_says_so(cluster, start, tmp_path):
    (tmp_path / "day.csv").write_text("t\n1\n2\n")
    before = worker_processes()
    with nothing_left(within_s=10):
        program = start("frozen", cluster.address, phases=[{"name": "hold", "kind": "hold", "duration_s": 30}])
        wait_for_load(tmp_path / "frozen", program)
        program.send_signal(signal.SIGSTOP)  # what the crews see of a conductor that is cut off
        frozen_s = time.monotonic()
        while worker_processes() - before:
            assert time.monotonic() - frozen_s < LEASE_S + 5
            time.sleep(0.1)
        program.send_signal(signal.SIGCONT)
        code, record, errors = ended(program)
    assert code == ExitCode.INCONCLUSIVE, errors
    assert {gap["worker"] for gap in record["gaps"]} == {0, 1, 2, 3}


def test_ctrl_c_ends_the_run_in_order_with_an_audit(cluster, start, tmp_path):
    (tmp_path / "day.csv").write_text("t\n1\n2\n")
    with nothing_left(within_s=10):
        program = start("stopped", cluster.address, phases=[{"name": "hold", "kind": "hold", "duration_s": "10m"}])
        wait_for_load(tmp_path / "stopped", program)
        program.send_signal(signal.SIGINT)
        code, record, errors = ended(program)
    assert code == ExitCode.INTERRUPTED, errors
    assert record["audit"]["readings"]["lost"] == 0
    assert record["audit"]["readings"]["sent"] > 0


OUTSIDE = {
    "devices": 2,
    "models": [{"signals": {"t": {"kind": "csv", "file": "../elsewhere.csv", "column": "t", "every_s": 1}}}],
}
MANY = {
    "fleet": {**SCENARIO["fleet"], "devices": 100_000, "prepare_within_s": "1h"},
    "target": {"transport": "http_poll", "connections": "per_device"},
}


@pytest.mark.parametrize(
    "case",
    [
        ("127.0.0.1:1", {}, "nobody answers at 127.0.0.1:1"),
        ("somewhere", {}, "'somewhere': write HOST:PORT"),
        ("http://127.0.0.1:6379", {}, "write HOST:PORT"),
        (None, {"workers": 5}, "5 workers need a core each, and there are 4"),
        (None, {"fleet": OUTSIDE}, "elsewhere.csv: machines of a cluster get the files in"),
        (None, MANY, "127.0.0.2: ports: 50,000 needed"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line_and_nothing_is_sent(cluster, start, tmp_path, case):
    address, changes, sentence = case
    (tmp_path / "day.csv").write_text("t\n1\n2\n")
    (tmp_path.parent / "elsewhere.csv").write_text("t\n1\n2\n")
    with nothing_left(within_s=5):
        code, _, errors = ended(start("refused", address or cluster.address, **changes))
    assert code == ExitCode.USAGE, errors
    assert sentence in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "refused").exists()
