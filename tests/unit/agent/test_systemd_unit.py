"""The unit files: what systemd says of them, and what they promise against what the programs do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.app.agent import STOP_GRACE_S
from agent.errors import EXIT_CONFIGURATION
from agent.handlers.root_tasks import Reboot
from agent.update.trial import Places
from tests.conftest import require_program
from tests.support.processes import run_program

SYSTEMD = Path(__file__).parents[3] / "systemd"
UNIT = SYSTEMD / "device-agent.service"
GATEWAY = SYSTEMD / "device-gateway.service"
BROKER = SYSTEMD / "device-gateway-broker.service"
BROKER_PATH = SYSTEMD / "device-gateway-broker.path"

REBOOT = SYSTEMD / "device-agent-reboot.service"
REBOOT_PATH = SYSTEMD / "device-agent-reboot.path"
REBOOT_TIMER = SYSTEMD / "device-agent-reboot.timer"
INSTALLER = SYSTEMD / "device-agent-update.service"
INSTALLER_PATH = SYSTEMD / "device-agent-update.path"
TRIAL = SYSTEMD / "device-agent-trial.service"


def settings(unit: Path = UNIT) -> dict[str, str]:
    lines = [line for line in unit.read_text().splitlines() if line and not line.startswith(("#", "["))]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize(
    "unit", [UNIT, GATEWAY, BROKER, BROKER_PATH, REBOOT, INSTALLER, TRIAL], ids=lambda unit: unit.name
)
def test_systemd_finds_no_fault_in_the_unit(unit, tmp_path):
    analyze = require_program("systemd-analyze", "systemd")
    for each in {unit, unit.with_suffix(".service")}:  # a path unit names its service
        # The program is not installed here, and its user neither: they are the installation's business.
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", each.read_text(), flags=re.MULTILINE)
        (tmp_path / each.name).write_text(text)
    done = run_program([analyze, "verify", "--man=no", tmp_path / unit.name])
    mine = [line for line in done.stderr.splitlines() if unit.name in line]
    assert mine == []


@pytest.mark.parametrize(
    ("unit", "most"),
    [(UNIT, 1.5), (GATEWAY, 1.5), (BROKER, 2.5), (REBOOT, 4.0), (INSTALLER, 5.0), (TRIAL, 5.0)],
    ids=["agent", "gateway", "broker", "reboot", "installer", "trial"],
)
def test_the_sandbox_is_as_tight_as_promised(unit, most):
    analyze = require_program("systemd-analyze", "systemd")
    done = run_program([analyze, "security", "--offline=true", unit])
    [exposure] = re.findall(r"exposure level for \S+ (\d+\.\d)", done.stdout)
    assert float(exposure) <= most


@pytest.mark.parametrize(("unit", "needs_s"), [(UNIT, STOP_GRACE_S + 2.5), (GATEWAY, 15.0)])
def test_each_program_has_time_to_stop_in_order(unit, needs_s):
    assert float(settings(unit)["TimeoutStopSec"]) >= needs_s


def test_a_wrong_configuration_of_the_gateway_is_not_started_again_and_again():
    assert settings(GATEWAY)["RestartPreventExitStatus"] == str(EXIT_CONFIGURATION)
    assert settings(GATEWAY)["Type"] == "notify"


def test_the_path_units_wait_where_the_agent_writes():
    runtime = Path("/run", settings()["RuntimeDirectory"])
    chosen = Reboot.Settings()
    for unit, service, request in (
        (REBOOT_PATH, REBOOT, chosen.request_file),
        (INSTALLER_PATH, INSTALLER, Places().request),
    ):
        assert request.parent == runtime
        assert settings(unit)["PathExists"] == str(request)
        assert f"/usr/bin/rm -rf --one-file-system {request}" in service.read_text()
    assert settings(REBOOT_TIMER)["Unit"] == REBOOT_PATH.name
    assert Path("/run", settings(REBOOT)["RuntimeDirectory"]) == chosen.taken_file.parent
    assert settings(REBOOT)["RuntimeDirectoryPreserve"] == "yes"
