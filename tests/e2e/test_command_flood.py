"""The real agent in front of a server that lists 150,000 commands at once: bounded memory, few lines."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.devices.token_file import FILE_NAME as TOKENS
from gateway.devices.token_file import DeviceTokenFile
from gateway.devices.tokens import make_token
from tests.canary import SECRET_KEY
from tests.e2e import command_flood
from tests.e2e.agent_bench import API_KEY, AgentProcess
from tests.ports import free_port

COUNT = 150_000
LOOKED_AT = 20_000
MOST_GATEWAY_MB = 150
MOST_MB = 120
"""Its unit allows 192 MB, and this is the most that a process of its own had for itself at any time."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the peak of a running process is Linux's to say"),
    pytest.mark.long,
]


@contextmanager
def flood(command: str, status: str) -> Iterator[str]:
    argv = [sys.executable, command_flood.__file__, str(COUNT), command, status]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.stdin.close()


def write_config(folder: Path, base_url: str) -> Path:
    for name, value in (("api_key", API_KEY), ("secret_key", SECRET_KEY)):
        (folder / name).write_text(value)
        (folder / name).chmod(0o600)
    members = {
        "service": {"base_url": base_url},
        "device": {"device_id": "d1"},
        "auth": {
            "mode": "key_pair",
            "allow_secret_key_on_device": True,
            "api_key_file": str(folder / "api_key"),
            "secret_key_file": str(folder / "secret_key"),
        },
        "state_dir": str(folder / "state"),
        "logging": {"level": "info"},
    }
    (folder / "state").mkdir(mode=0o700)
    config = folder / "agent.yaml"
    config.write_text(json.dumps(members))
    return config


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("nonsense", "", f"commands=skipped count={LOOKED_AT}"),
        ("nonsense", "queued", "commands=rejected count=19980 more"),
        ("ping", "queued", "commands=rejected count="),
    ],
)
def test_150_000_commands_take_bounded_memory_and_few_lines(tmp_path, command, status, said):
    with flood(command, status) as base_url:
        agent = AgentProcess(write_config(tmp_path, base_url), DEVICE_AGENT_LOGGING__LEVEL="info")
        try:
            agent.wait_for(said, within_s=300)
            agent.wait_for(f"of a list of {COUNT} or more commands only {LOOKED_AT}", within_s=300)
            assert peak_mb(agent.pid) < MOST_MB
            taken_in = [line for line in agent.lines if "thread=commands" in line]
            assert len(taken_in) < 300
            assert agent.terminate()[0] == 0
        finally:
            agent.close()
        with urllib.request.urlopen(f"{base_url}/counts") as answer:  # noqa: S310 - the server above
            assert json.load(answer)["polls"] < 60


@pytest.mark.timeout(400)
def test_150_000_commands_take_bounded_memory_in_the_gateway(tmp_path):
    state = tmp_path / "gateway"
    state.mkdir(mode=0o700)
    with DeviceTokenFile(state / TOKENS) as file:
        file.issue({"d1": make_token(secrets.token_bytes)}, time.time())
    for name, value in (("api_key", API_KEY), ("secret_key", SECRET_KEY)):
        (tmp_path / name).write_text(value)
        (tmp_path / name).chmod(0o600)
    with flood("ping", "") as base_url:
        members = {
            "service": {"base_url": base_url},
            "auth": {"api_key_file": str(tmp_path / "api_key"), "secret_key_file": str(tmp_path / "secret_key")},
            "state_dir": str(state),
            "http": {"enabled": True, "host": "127.0.0.1", "port": free_port()},
            "commands": {"fast_s": 1, "idle_s": 1, "reconcile_s": 5},
            "metrics": {"enabled": False},
        }
        config = tmp_path / "gateway.yaml"
        config.write_text(json.dumps(members))
        gateway = AgentProcess(config, module="gateway.cli", DEVICE_GATEWAY_LOGGING__LEVEL="info")
        try:
            gateway.wait_for("commands=too_many device=d1 130000 or more", within_s=300)
            gateway.wait_for("commands=dropped device=d1", within_s=300)
            assert peak_mb(gateway.pid) < MOST_GATEWAY_MB
            assert gateway.terminate()[0] == 0
        finally:
            gateway.close()
