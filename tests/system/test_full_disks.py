"""The agent, a fleet run and the service on a disk that is full: it is waited for, or one line says so; never green."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.program import device_agent
from simulator.service.clock import SystemClock
from tests.conftest import do_without
from tests.support.processes import run_module
from tests.support.service_running import running
from tests.system.agent_bench import wait_until

SCENARIO = """
scenario: tiny
seed: 1
target: {transport: http_poll}
fleet: {devices: 20, models: [{telemetry: {every_s: 100ms}}]}
phases: [{name: hold, kind: hold, duration_s: 3s}]
thresholds: ["audit.lost == 0"]
"""


@pytest.fixture
def mounted(require_program) -> Iterator[Callable[[Path], Path]]:
    """Makes a folder a small file system of its own; only root may mount one."""
    mount, umount = require_program("mount"), require_program("umount")
    with contextlib.ExitStack() as stack:

        def make(folder: Path) -> Path:
            folder.mkdir(mode=0o700, exist_ok=True)
            done = subprocess.run(
                [mount, "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, check=False
            )
            if done.returncode:
                do_without(f"no file system can be mounted here: {done.stderr.decode().strip()}", "run as root")
            stack.callback(subprocess.run, [umount, "--lazy", folder], check=True)
            return folder

        yield make


@pytest.fixture
def disk(bench, mounted) -> Iterator[Path]:
    """The agent's state directory."""
    yield mounted(bench.folder / "state")
    bench.close()


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


def fill(folder: Path, *, leave: int = 0) -> Path:
    """Until so many bytes are left."""
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    ballast = folder / "ballast"
    with ballast.open("r+b") as file:
        file.truncate(max(0, ballast.stat().st_size - leave))
    return ballast


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [("nr_inodes=1", "nr_inodes=10000", "No space left on device"), ("ro", "rw", "Read-only file system")],
)
def test_a_disk_that_takes_no_file_at_the_start_is_waited_for(bench, disk, before, after, words):
    remount(disk, before)
    agent = bench.start(until="store=waiting")
    line = agent.wait_for("store=waiting")
    assert words in line
    assert str(disk) in line
    remount(disk, after)
    agent.wait_for("agent=ready", 60)
    assert bench.wait_for(bench.send(command="ping")).status == "succeeded"
    assert agent.terminate()[0] == 0
    text = "\n".join(agent.lines)
    assert "Traceback" not in text
    assert text.count("store=waiting") == 1


def test_a_disk_without_a_free_block_at_the_start_is_waited_for(bench, disk):
    ballast = fill(disk)
    agent = bench.start(until="store=waiting")
    ballast.unlink()
    agent.wait_for("agent=ready", 60)
    assert agent.terminate()[0] == 0
    assert "Traceback" not in "\n".join(agent.lines)


def test_sigterm_ends_the_waiting(bench, disk):
    remount(disk, "ro")
    agent = bench.start(until="store=waiting")
    assert agent.terminate()[0] == 0
    remount(disk, "rw")


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_readings_that_a_full_disk_kept_in_memory_are_told_as_a_gap_after_a_restart(bench, disk, ending):
    sensors = "sensors: [{name: s, type: simulated, interval_s: 0.1, settings: {shape: random_walk}}]\n"
    url = str(bench.client.base_url)
    bench.write_config("http://127.0.0.1:9", more=sensors)
    agent = bench.start()
    ballast = fill(disk)
    agent.wait_for("store=degraded")
    threading.Event().wait(8)  # readings that can only be kept in memory
    agent.terminate() if ending == "stopped" else agent.kill()
    bench.write_config(url)
    ballast.unlink()
    agent = bench.start()
    lost = int(agent.wait_for("store=lost").partition("store=lost ")[2].split()[0])
    assert lost > 10
    query = {"device_id": bench.device_id, "limit": 1000, "order": "desc"}

    def told() -> float | None:
        records = bench.client.request("GET", "/sensor-data", params=query).json()["data"]
        rows = [record["sensor_data"].get("agent_gap_rows") for record in records]
        return next((each for each in rows if each), None)

    assert wait_until(told) >= lost
    shown = CliRunner().invoke(device_agent, ["status", "--config", str(bench.config)]).output
    assert f", {lost} dropped" in shown


# --- the simulator ---------------------------------------------------------------------------------------------------


def simulator(*words: str) -> tuple[int, str]:
    done = run_module("simulator.cli", *words)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("leave", [0, 200_000])
def test_a_run_whose_disk_is_full_is_no_pass(tmp_path, mounted, leave):
    disk = mounted(tmp_path / "disk")
    scenario, secret = tmp_path / "tiny.yaml", tmp_path / "secret"
    scenario.write_text(SCENARIO)
    with running(clock=SystemClock(), rate_limit=0) as bench:
        secret.write_text(bench.service.secret_key.reveal())
        secret.chmod(0o600)
        fill(disk, leave=leave)
        way = ["--base-url", bench.service.base_url, "--api-key", bench.service.api_key]
        way += ["--secret-key-file", str(secret)]
        code, said = simulator("run", str(scenario), *way, "--out", str(disk / "run"), "--quiet")
    assert code in {2, 3}, said
    assert "No space left on device" in said or "disk" in said
    assert "Traceback" not in said


@pytest.mark.long
def test_a_service_whose_disk_is_full_says_so_in_one_line(tmp_path, mounted):
    disk = mounted(tmp_path / "disk")
    fill(disk)
    code, said = simulator("service", "--port=0", "--data", str(disk / "data"))
    assert code == 2, said
    assert "disk is full" in said
    assert "Traceback" not in said
