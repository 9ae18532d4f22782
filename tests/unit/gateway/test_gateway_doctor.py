"""The gateway's doctor: its unit as shipped with one thing that is wrong, its key files, and the program."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.doctor.examination import examine
from agent.doctor.findings import Finding
from gateway.cli.program import device_gateway
from gateway.config import GatewayConfig, LoadedGateway
from gateway.doctor import CHECKS, GatewaySubject
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
UNIT = (ROOT / "systemd/device-gateway.service").read_text()
PROGRAM = "/opt/device-agent/bin/device-gateway"
SHOW = {
    "LoadState": "loaded",
    "UnitFileState": "enabled",
    "ActiveState": "inactive",
    "SubState": "dead",
    "Result": "success",
    "FragmentPath": "/etc/systemd/system/device-gateway.service",
    "DropInPaths": "",
    "NeedDaemonReload": "no",
    "Type": "notify",
    "WatchdogUSec": "infinity",
    "User": "device-gateway",
}


class Machine:
    """A server with the gateway installed as documented, and never started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.show = dict(SHOW)
        self.cat = UNIT
        (folder / "run/systemd/system").mkdir(parents=True)
        self.put(PROGRAM, "#!/bin/sh\n").chmod(0o755)
        self.config_path = self.put("/etc/device-gateway/config.yaml", "service: {}\n")
        self.put("/etc/device-gateway/api_key", "mk_gateway_0001").chmod(0o600)
        self.put("/etc/device-gateway/secret_key", "msk_gateway").chmod(0o600)
        self.values = {"service": {"base_url": "http://127.0.0.1:9"}, "state_dir": "/var/lib/device-gateway"}
        self.user = (os.geteuid(), frozenset[int]())

    def put(self, absolute: str, text: str) -> Path:
        path = self.folder / absolute.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def drop_in(self, text: str) -> None:
        self.cat += f"\n# /etc/x.conf\n[Service]\n{text}\n"

    def examine(self) -> dict[str, Finding]:
        loaded = LoadedGateway(GatewayConfig.model_validate(self.values), self.config_path)
        subject = GatewaySubject(
            lambda: loaded,
            {},
            root=self.folder,
            run=self._run,
            find_user=lambda name: self.user if name == "device-gateway" else None,
        )
        return {result.check.id: result.finding for result in examine(subject, checks=CHECKS, offline=True)}

    def _run(self, argv: Sequence[str]) -> str | None:
        if argv[:3] == ["systemctl", "show", "device-gateway.service"]:
            return "".join(f"{key}={value}\n" for key, value in self.show.items())
        return self.cat if argv[:3] == ["systemctl", "cat", "device-gateway.service"] else None


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_as_documented_it_is_only_not_started(machine):
    found = machine.examine()
    assert {name for name, each in found.items() if each.verdict in {"failed", "warning"}} <= {"unit", "state_dir"}
    assert found["unit"].fix.endswith("systemctl start device-gateway")
    assert found["unit_credentials"].seen == "it hands over api_key, secret_key, and the files are there"
    assert found["key_files"].verdict == "ok"


def test_a_credential_that_is_not_there(machine):
    machine.drop_in("LoadCredential=token:/etc/x")
    finding = machine.examine()["unit_credentials"]
    assert finding.verdict == "failed"
    assert "systemctl edit device-gateway" in finding.fix


def test_keys_that_are_missing_open_or_hidden_from_the_gateway(machine):
    (machine.folder / "etc/device-gateway/secret_key").chmod(0o644)
    assert "chmod 600" in machine.examine()["key_files"].fix
    (machine.folder / "etc/device-gateway/secret_key").unlink()
    found = machine.examine()
    assert "secret_key does not exist" in found["unit_credentials"].cause
    assert found["key_files"].verdict == "failed"
    machine.drop_in("LoadCredential=")
    for name in ("api_key", "secret_key"):
        text = {"api_key": "mk_gateway_0001", "secret_key": "msk_gateway"}[name]
        path = machine.put(f"/etc/device-gateway/{name}", text)
        path.chmod(0o600)
        machine.values.setdefault("auth", {})[f"{name}_file"] = path
    assert machine.examine()["key_files"].verdict == "ok"
    machine.user = (54321, frozenset({54321}))
    assert machine.examine()["key_files"].cause.startswith("device-gateway may not read")


def test_without_systemd_it_says_so_and_looks_at_the_rest(machine):
    (machine.folder / "run/systemd/system").rmdir()
    found = machine.examine()
    assert found["unit"].seen == found["unit_text"].seen == "this machine was not booted with systemd"
    assert found["unit_credentials"].verdict == "skipped"
    assert found["devices"].verdict in {"ok", "skipped"}


def test_ids_are_unique_and_what_a_check_waits_for_comes_before_it():
    seen: set[str] = set()
    for check in CHECKS:
        assert check.id not in seen
        assert set(check.after) <= seen, check.id
        seen.add(check.id)


def test_every_check_is_in_the_documents():
    page = (ROOT / "docs/operations.md").read_text() + (ROOT / "docs/gateway.md").read_text()
    assert [check.id for check in CHECKS if f"`{check.id}`" not in page] == []


class TestProgram:
    def run(self, config: Path, *arguments: str):
        return CliRunner().invoke(device_gateway, ["doctor", "--config", str(config), *arguments])

    @pytest.fixture
    def config(self, tmp_path) -> Path:
        for name, text in (("api_key", "mk_gateway_0001"), ("secret_key", "msk_gateway")):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o600)
        values = {
            "service": {"base_url": f"http://127.0.0.1:{free_port()}"},
            "auth": {"api_key_file": str(tmp_path / "api_key"), "secret_key_file": str(tmp_path / "secret_key")},
            "state_dir": str(tmp_path / "state"),
        }
        (tmp_path / "state").mkdir(mode=0o700)
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps(values))
        return path

    def test_nobody_is_asked_and_all_is_well(self, config):
        found = self.run(config, "--offline", "--json")
        verdicts = {line["id"]: line["verdict"] for line in json.loads(found.output)}
        assert set(verdicts) == {check.id for check in CHECKS}
        assert (verdicts["configuration"], verdicts["key_files"], verdicts["http"]) == ("ok", "ok", "ok")
        assert (verdicts["service"], verdicts["mqtt"]) == ("skipped", "skipped")

    def test_a_service_that_is_away_and_a_wrong_configuration_have_exit_codes_of_their_own(self, config):
        away = self.run(config, "--quiet")
        assert away.exit_code == 5, away.output
        assert re.search(r"^FAILED +service", away.output, re.MULTILINE)
        config.write_text(json.dumps({"service": {"base_url": "ftp://x"}, "htp": {}}))
        wrong = self.run(config)
        assert wrong.exit_code == 2, wrong.output
        assert re.search(r"^FAILED +configuration", wrong.output, re.MULTILINE)
