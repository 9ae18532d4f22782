"""The arm64 package on an emulated machine that boots Debian's arm64 kernel: ``make emulated-test``.

A boot and all that follows take a quarter of an hour; the first time some ten minutes more, for its Debian. The figures
that it prints stand in docs/operations.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.wire.sending import SendCommand
from tests.arm64_machine import HOST, PROGRAMS, Arm64Machine, disk_of, image
from tests.conftest import do_without, require_program
from tests.e2e.agent_bench import wait_until
from tests.e2e.test_gateway_journey import travelling

pytestmark = pytest.mark.timeout(7200)

ROOT = Path(__file__).parents[2]
UNIT = "device-agent.service"
_SLOW_S = 600.0


@pytest.fixture
def disk(tmp_path):
    """An image with the arm64 package of the agent."""
    if not os.environ.get("EMULATED"):
        pytest.skip("make emulated-test plays it: the emulated machine takes a quarter of an hour")
    for program, package in PROGRAMS.items():
        require_program(program, package)
    if os.geteuid() != 0:
        do_without("an arm64 Debian is made, which only root may do", "run it as root")
    folder = tmp_path / "packages"
    build = (sys.executable, "tools/build_deb.py", "--architecture", "arm64", "--package", "device-agent")
    done = subprocess.run(
        (*build, "--level", "0", "--out", str(folder)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    disk_of(folder, tmp_path / "packages.img", "64M")
    return tmp_path / "packages.img"


def ping(device_id: str) -> SendCommand:
    return SendCommand(device_id=device_id, command_payload={"command": "ping"})


def test_the_package_works_on_an_arm64_machine(disk, tmp_path, capsys):
    with travelling(tmp_path) as journey:
        journey.set_up("--host", HOST)
        journey.start()
        url = f"https://{HOST}:8443"
        terms = ("--product-id", journey.product_id, "--user-id", "me", "--url", url)
        code = json.loads(journey.run("devices", "invite", "--json", "--expires", "6h", *terms))["code"]
        with Arm64Machine(image(), disk, journey.port) as machine:
            assert machine.run("uname -m") == "aarch64"
            machine.run("apt-get --quiet --yes install /mnt/device-agent_*_arm64.deb")
            assert machine.ask(f"systemctl is-enabled {UNIT}") == "enabled"
            said = machine.run(f"device-agent enroll {url} {code} --identifier SN-ARM")
            assert "the service runs" in said
            (device,) = journey.client.devices()
            assert device.device_identifier == "SN-ARM"

            command = journey.client.send_command(ping(device.device_id))

            def ended():
                records = {record.id: record for record in journey.client.device_commands(device.device_id).records}
                return records[command.id].status == "succeeded"

            wait_until(ended, _SLOW_S)
            wait_until(lambda: list(journey.client.sensor_data(device.device_id)), _SLOW_S)
            # Figures of an agent that has worked and rests: after a start of its own.
            machine.run(f"systemctl restart {UNIT}")
            pid = machine.run(f"systemctl show --value --property=MainPID {UNIT}")
            begun = machine.run(f"systemctl show --value --property=ExecMainStartTimestampMonotonic {UNIT}")
            ready = machine.run(f"systemctl show --value --property=ActiveEnterTimestampMonotonic {UNIT}")
            second = journey.client.send_command(ping(device.device_id))
            command = second
            wait_until(ended, _SLOW_S)
            pss = machine.run(f"awk '/^Pss:/ {{print $2}}' /proc/{pid}/smaps_rollup")
            assert '"failed"' not in machine.ask("device-agent doctor --json")
            machine.run("apt-get --quiet --yes purge device-agent")
            assert machine.ask("ls -d /etc/device-agent /var/lib/device-agent").count("No such file") == 2
        ready_s = (int(ready) - int(begun)) / 1e6
        with capsys.disabled():
            sys.stderr.write(f"\nemulated arm64: PSS {int(pss) / 1024:.1f} MiB, ready after {ready_s:.1f} s\n")
