"""Commands of both programs on a full disk: few lines, the documented code, no leftover, and with room they work."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import agent.cli
import gateway.cli
from agent.wire.auth import KeyPair
from agent.wire.registration import RegisterDevice
from agent.wire.secret import Secret
from simulator.cli import main
from simulator.keys import write_secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from simulator.wire.products import NewProduct
from tests.e2e.test_full_disk_simulator import SCENARIO, disk, fill

__all__ = ["disk"]
AGENT, GATEWAY = "device-agent", "device-gateway"
STARTS = {AGENT: agent.cli.main, GATEWAY: gateway.cli.main, "fleet-simulator": main}
FULL = "No space left on device"


@pytest.fixture(name="program")
def _program(capsys, monkeypatch):
    """Run one of the programs in this process; its exit code and what it said on both outputs."""

    def run(name: str, *words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        with pytest.raises(SystemExit) as end:
            STARTS[name]()
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return int(end.value.code or 0), told.out, told.err

    return run


@pytest.fixture(name="service", scope="module")
def _service():
    """One with the clock of this machine: an audit judges the times of readings."""
    with RunningService(ServiceConfig(port=0, api_key="mk_1", secret_key=Secret("msk_1"), rate_limit=0)) as service:
        yield service


@pytest.fixture(name="way")
def _way(service, tmp_path):
    secret = write_secret(tmp_path / "secret", "msk_1")
    return ["--base-url", service.base_url, "--api-key", "mk_1", "--secret-key-file", secret]


@pytest.fixture(name="finished")
def _finished(way, tmp_path, disk, program):
    """The folder of a run that passed, on the disk that is going to be full."""
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(SCENARIO)
    code, out, err = program("fleet-simulator", "run", scenario, *way, "--out", disk / "run")
    assert code == 0, out + err
    return disk / "run"


def hidden(folder: Path) -> list[str]:
    """Files that an attempt left behind."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*") if path.is_file())


@pytest.mark.parametrize("room", [0, 4096, 20_480])
def test_reports_that_a_full_disk_refuses_are_named_in_one_line_for_each_reason(room, finished, disk, program):
    ballast = fill(disk, room)
    code, out, err = program("fleet-simulator", "report", finished)
    assert code == 5
    assert len(err.splitlines()) == 1, err
    assert FULL in err
    assert "report.html" in err
    assert "make room there and run 'fleet-simulator report'" in err
    assert "report: " not in out, "the page is the one from before"
    ballast.unlink()
    assert program("fleet-simulator", "report", finished)[0] == 0


@pytest.mark.parametrize("room", [0, 20_480])
def test_an_audit_whose_record_a_full_disk_refuses_is_no_success(room, finished, way, disk, program):
    before = json.loads((finished / "run.json").read_text())
    ballast = fill(disk, room)
    code, _, err = program("fleet-simulator", "audit", finished, *way)
    assert code == 5
    assert FULL in err
    if room == 0:
        assert json.loads((finished / "run.json").read_text()) == before
    ballast.unlink()
    assert program("fleet-simulator", "audit", finished, *way)[0] == 0
    assert "audited_at" in json.loads((finished / "run.json").read_text())


def test_a_signed_command_whose_counter_cannot_be_kept_is_not_sent(service, way, disk, tmp_path, program):
    assert program("device-agent", "keys", "make", tmp_path / "sender")[0] == 0
    with ServiceClient(service.base_url, KeyPair("mk_1", Secret("msk_1"))) as client:
        product_id = client.create_product(NewProduct(name="door")).product_id
        device = client.register_device(
            RegisterDevice(user_id="u", product_id=product_id, device_identifier="SN-1")
        ).device_id
        send = ["command", "send", *way, "--device", device, "--payload", '{"command": "ping"}']
        signed = [*send, "--sign", tmp_path / "sender.key", "--counter-file", disk / "counter"]
        ballast = fill(disk, 0)
        code, _, err = program("fleet-simulator", *signed)
        assert code == 2
        assert len(err.splitlines()) == 1, err
        assert f"{FULL}; give another --counter-file" in err
        assert not client.device_commands(device).records
        ballast.unlink()
        assert program("fleet-simulator", *signed)[0] == 0
        assert len(client.device_commands(device).records) == 1


def agent_commands(disk: Path, kept: Path) -> dict[str, tuple[str, list[object]]]:
    """Each command of agent and gateway that writes files: its program and its words."""
    out = disk / "out"
    gateway = ["--config", kept / "config.yaml"]
    token = ["devices", "add", *gateway, "--no-check", "--plain", "--url", "http://127.0.0.1:1"]
    return {
        "init": (AGENT, ["init", "--dir", out, "--base-url", "https://h", "--device-id", "d", "--product-id", "p"]),
        "keys make": (AGENT, ["keys", "make", disk / "sender"]),
        "gateway init": (GATEWAY, ["init", "--dir", out, "--base-url", "https://h", "--state-dir", out / "state"]),
        "certificates": (GATEWAY, ["certificates", "--dir", out, "--host", "h"]),
        "broker-config": (GATEWAY, ["broker-config", *gateway, "--conf", out / "m.conf", "--dir", out, "--no-tls"]),
        "configuration": (GATEWAY, [*token, "--device-id", "d-1", "--config-out", out]),
        "QR picture": (GATEWAY, [*token, "--device-id", "d-2", "--qr-png", disk / "token.png"]),
    }


@pytest.mark.parametrize("name", list(agent_commands(Path(), Path())))
def test_a_command_of_agent_or_gateway_names_the_file_and_succeeds_once_there_is_room(name, disk, tmp_path, program):
    kept = tmp_path / "gateway"
    made = ["--dir", kept, "--state-dir", kept / "state", "--base-url", "https://h", "--mqtt", "--host", "localhost"]
    assert program(GATEWAY, "init", *made)[0] == 0
    for key in ("api_key", "secret_key"):
        write_secret(kept / key, "mk_1" if key == "api_key" else "msk_1")
    own, words = agent_commands(disk, kept)[name]
    refused = 0
    for room in (0, 4096, 12_288):
        ballast = fill(disk, room)
        code, out, err = program(own, *words)
        ballast.unlink()
        if code:
            refused += 1
            assert code == (1 if name == "QR picture" else 2), err
            assert FULL in err, err
            assert str(disk) in err
            assert len(err.splitlines()) <= 2, err
        assert hidden(disk) == [], out
        for path in disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for file in (kept / "state").glob("tokens.db*"):
            file.unlink()
    assert refused
    assert program(own, *words)[0] == 0
