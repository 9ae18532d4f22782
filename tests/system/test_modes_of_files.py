"""What runs under ``umask 000``: nobody but the owner writes what it made, nor reads what holds a secret."""

from __future__ import annotations

import contextlib
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.target.target import read_local
from tests.conftest import require_program
from tests.system.agent_bench import wait_until

pytestmark = pytest.mark.long

SOON_S = 60.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
# A manufacturer's key, a device's token, a private key, a label's secret, and what the test gives for one.
_SECRET = re.compile(rb"msk_\w{6}|dat_[0-9A-Za-z]{32}|PRIVATE KEY-----|Canary")


def faults_below(*tops: Path) -> list[str]:
    """What others than the owner can write, and what holds a secret and others can read."""
    faults = []
    for top in tops:
        for path in [top, *top.rglob("*")]:
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
                continue
            shown = f"{stat.filemode(status.st_mode)} {path.relative_to(top.parent)}"
            if status.st_mode & _OTHERS_WRITE:
                faults.append(f"others write {shown}")
            if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS_READ and _SECRET.search(path.read_bytes()):
                faults.append(f"others read a secret in {shown}")
    return faults


@pytest.mark.timeout(180)
def test_what_up_makes_while_it_runs_is_its_owners_alone(tmp_path):
    """Keys, tokens, databases, the broker's files and logs of all its programs."""
    require_program("mosquitto")
    folder = tmp_path / "made"
    folder.mkdir(mode=0o700)
    words = ("up", f"--data={folder / 'up'}", "--port=0", "--gateway-port=0")
    up = subprocess.Popen(
        [sys.executable, "-m", "simulator.cli", *words],
        cwd=folder,
        umask=0,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _stands(folder / "up"), SOON_S)
        assert len(list(folder.rglob("*"))) > 10
        assert faults_below(folder) == []
    finally:
        up.terminate()
        assert up.wait(SOON_S) == 0
    assert faults_below(folder) == []


def _stands(folder: Path) -> bool:
    with contextlib.suppress(ConfigurationError):
        return bool(read_local(folder).broker_url)
    return False
