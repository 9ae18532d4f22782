"""``device-agent run`` and ``gateway run`` on a disk that is full when they start."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner

from agent.cli.program import device_agent
from tests.conftest import ON_CI
from tests.system.agent_bench import wait_until

BLOCKS = "size=16m"


@pytest.fixture
def disk(bench, require_program) -> Iterator[Path]:
    """The agent's state directory as a file system of its own, which is empty; only root may mount one."""
    mount, umount = require_program("mount"), require_program("umount")
    folder = bench.folder / "state"
    folder.mkdir(mode=0o700, exist_ok=True)
    done = subprocess.run([mount, "-t", "tmpfs", "-o", BLOCKS, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        reason = f"no file system can be mounted here: {done.stderr.decode().strip()}"
        pytest.fail(reason) if ON_CI else pytest.skip(reason)
    try:
        yield folder
    finally:
        bench.close()
        subprocess.run([umount, "--lazy", folder], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


def write_until_full(file: BinaryIO | RawIOBase) -> None:
    with contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        write_until_full(file)
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
