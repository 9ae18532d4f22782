"""The gateway's unit file: what systemd says of it, and what it promises against what the gateway does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from agent.exit_codes import EXIT_CONFIGURATION
from gateway.run import MOST_STOP_S
from tests.conftest import require_program

UNIT = Path(__file__).parents[3] / "systemd" / "device-gateway.service"


def settings() -> dict[str, str]:
    lines = [line for line in UNIT.read_text().splitlines() if line and not line.startswith(("#", "["))]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("name", [UNIT.name, "device-gateway-broker.path", "device-gateway-broker.service"])
def test_systemd_finds_no_fault_in_the_unit(tmp_path, name):
    analyze = require_program("systemd-analyze", "systemd")
    for unit in UNIT.parent.glob("device-gateway*"):
        # The program is not installed here, and its user neither: they are the installation's business.
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    command = [analyze, "verify", "--man=no", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if name in line] == []


def test_who_writes_for_the_broker_may_do_little_else():
    analyze = require_program("systemd-analyze", "systemd")
    unit = UNIT.with_name("device-gateway-broker.service")
    command = [analyze, "security", "--offline=true", "--threshold=40", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    [exposure] = re.findall(r"exposure level for \S+ (\d+\.\d)", done.stdout)
    assert float(exposure) <= 2.5, done.stdout


def test_the_sandbox_is_as_tight_as_the_agents():
    analyze = require_program("systemd-analyze", "systemd")
    command = [analyze, "security", "--offline=true", "--threshold=15", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    [exposure] = re.findall(r"exposure level for \S+ (\d+\.\d)", done.stdout)
    assert float(exposure) <= 1.5


def test_a_wrong_configuration_is_not_started_again_and_again():
    assert settings()["RestartPreventExitStatus"] == str(EXIT_CONFIGURATION)
    assert settings()["Type"] == "notify"


def test_the_gateway_has_time_to_stop_in_order():
    assert float(settings()["TimeoutStopSec"]) >= MOST_STOP_S
