"""``fleet-simulator up`` ends with the first of its parts that does, and says which one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.watched import PartEnded

UP = [str(Path(sys.executable).with_name("fleet-simulator")), "up", "--port=0", "--gateway-port=0", "--json"]


def test_up_ends_with_its_gateway():
    with subprocess.Popen(
        UP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            os.kill(gateway_of(process.pid), signal.SIGKILL)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "gateway ended unexpectedly with -9" in said


def gateway_of(pid: int) -> int:
    children = [
        int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
    ]
    return next(child for child in children if b"device-gateway" in Path(f"/proc/{child}/cmdline").read_bytes())


def test_a_service_whose_server_ends_by_itself_says_so_and_leaves_no_thread():
    with RunningService(ServiceConfig(rate_limit=0)) as service:
        service.look()
        service._server.should_exit = True
        service._thread.join(60)
        with pytest.raises(PartEnded, match="service ended unexpectedly"):
            service.look()
        with pytest.raises(PartEnded):
            service.do(lambda _service: None)
    assert "service-http" not in {thread.name for thread in threading.enumerate()}


def test_a_start_that_fails_leaves_no_folder_and_no_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    config = ServiceConfig(console=True, runs_dir=tmp_path / "file" / "runs", scenarios_dir=tmp_path / "nothing")
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError):
        RunningService(config)
    assert set(threading.enumerate()) == before
    assert {path.name for path in tmp_path.iterdir()} == {"file"}
