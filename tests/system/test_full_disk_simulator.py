"""A fleet run and a service on a disk that is full: one line that says so, and never a green verdict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from simulator.service.clock import SystemClock
from tests.conftest import do_without
from tests.support.service_running import running

pytestmark = pytest.mark.long

SCENARIO = """
scenario: tiny
seed: 1
target: {transport: http_poll}
fleet: {devices: 20, models: [{telemetry: {every_s: 100ms}}]}
phases: [{name: hold, kind: hold, duration_s: 3s}]
thresholds: ["audit.lost == 0"]
"""


@pytest.fixture
def disk(tmp_path, require_program) -> Iterator[Path]:
    """A small file system of its own; only root may mount one."""
    mount, umount = require_program("mount"), require_program("umount")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        do_without(f"no file system can be mounted here: {done.stderr.decode().strip()}", "run the build as root")
    try:
        yield folder
    finally:
        subprocess.run([umount, "--lazy", folder], check=True)


def fill(folder: Path, *, leave: int = 0) -> None:
    """Until so many bytes are left."""
    with (folder / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    ballast = folder / "ballast"
    with ballast.open("r+b") as file:
        file.truncate(max(0, ballast.stat().st_size - leave))


def simulator(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "simulator.cli", *words], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("leave", [0, 200_000])
def test_a_run_whose_disk_is_full_is_no_pass(tmp_path, disk, leave):
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


def test_a_service_whose_disk_is_full_says_so_in_one_line(disk):
    fill(disk)
    code, said = simulator("service", "--port=0", "--data", str(disk / "data"))
    assert code == 2, said
    assert "disk is full" in said
    assert "Traceback" not in said
