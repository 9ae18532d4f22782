"""The unit file: what systemd says of it, and what it promises against what the agent does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from agent.cli.options import EXIT_CONFIGURATION
from agent.config import CommandsConfig
from agent.runtime.supervisor import EXIT_RESTART
from tests.conftest import require_program

SYSTEMD = Path(__file__).parents[3] / "systemd"
UNIT = SYSTEMD / "device-agent.service"


def settings() -> dict[str, str]:
    lines = [line for line in UNIT.read_text().splitlines() if line and not line.startswith(("#", "["))]
    return dict(line.split("=", 1) for line in lines)


def test_systemd_finds_no_fault_in_the_unit(tmp_path):
    analyze = require_program("systemd-analyze", "systemd")
    copy = tmp_path / UNIT.name
    # The program is not installed here, and its user neither: they are the installation's business.
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE)
    copy.write_text(text)
    done = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    mine = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert mine == []


def test_the_sandbox_is_as_tight_as_promised():
    analyze = require_program("systemd-analyze", "systemd")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=15", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    [exposure] = re.findall(r"exposure level for \S+ (\d+\.\d)", done.stdout)
    assert float(exposure) <= 1.5


def test_the_exit_codes_are_the_agents():
    found = settings()
    assert found["RestartPreventExitStatus"] == str(EXIT_CONFIGURATION)
    assert found["RestartForceExitStatus"] == str(EXIT_RESTART)
    assert found["Type"] == "notify"


def test_the_agent_has_time_to_stop_in_order():
    assert float(settings()["TimeoutStopSec"]) >= CommandsConfig().stop_grace_s + 2.5


def test_the_network_being_up_is_no_condition():
    conditions = [line for line in UNIT.read_text().splitlines() if line.startswith(("After=", "Wants=", "Requires="))]
    assert not [line for line in conditions if "network-online" in line]


def test_its_user_is_the_one_that_sysusers_makes():
    user = settings()["User"]
    assert re.search(rf"^u {user} ", (SYSTEMD / "sysusers.d" / "device-agent.conf").read_text(), re.MULTILINE)
