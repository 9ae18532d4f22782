"""Faults of an installation: the unit as a real systemd printed it, with one drop-in or one file that is wrong."""

from __future__ import annotations

import os

import pytest

from tests.unit.agent.doctor.conftest import RECORDS
from tests.unit.agent.doctor.test_local_checks import is_bad, is_ok, is_skipped

PROGRAM = "/opt/device-agent/bin/device-agent"
CHECKS = (
    *("unit_program", "unit_user", "unit_restart", "unit_config", "unit_environment", "state_owner"),
    *("sandbox_state", "sandbox_devices", "sandbox_home", "sandbox_network"),
)


@pytest.fixture(params=["252", "257"])
def machine(request, device):
    """A device on which everything is installed as documented; its state directory is the unit's."""
    device.boot_as_recorded(request.param, "as_shipped")
    device.put(PROGRAM, "#!/bin/sh\n").chmod(0o755)
    device.config_path = device.put("/etc/device-agent/config.yaml", "device: {}\n")
    device.options["find_user"] = lambda name: (os.geteuid(), frozenset()) if name == "device-agent" else None
    device.values["state_dir"] = "/var/lib/device-agent"
    device.values["auth"] = {"mode": "bearer", "token_file": "/etc/device-agent/token"}
    return device


def drop_in(machine, text: str, section: str = "Service") -> None:
    machine.programs["systemctl cat device-agent.service"] += f"\n# /etc/x.conf\n[{section}]\n{text}\n"


def show(machine, **properties: str) -> None:
    """systemctl show with other properties."""
    before = machine.programs["systemctl show device-agent.service"]
    lines = [line for line in before.splitlines() if line.partition("=")[0] not in properties]
    text = "\n".join([*lines, *(f"{name}={value}" for name, value in properties.items())])
    machine.programs["systemctl show device-agent.service"] = f"{text}\n"


def test_as_documented_nothing_is_wrong(machine):
    for check in CHECKS:
        if check != "state_owner":  # there is no /var/lib/device-agent on the machine of the tests
            is_ok(machine.look(check))


def test_without_a_unit_they_say_nothing(device):
    device.boot_with_systemd()
    is_skipped(device.look("unit_text"))


def test_a_program_that_is_missing_or_not_executable(machine):
    (machine.system / PROGRAM.lstrip("/")).chmod(0o644)
    if os.geteuid() != 0 or not os.access(machine.system / PROGRAM.lstrip("/"), os.X_OK):
        is_bad(machine.look("unit_program"), "failed", "203/EXEC", "chmod 755")
    (machine.system / PROGRAM.lstrip("/")).unlink()
    is_bad(machine.look("unit_program"), "failed", "is not there", "correct ExecStart=")


def test_a_user_that_does_not_exist_or_is_root(machine):
    machine.options["find_user"] = lambda _name: None
    is_bad(machine.look("unit_user"), "failed", "217/USER", "systemd-sysusers")
    show(machine, User="")
    is_bad(machine.look("unit_user"), "warning", "runs as root", "User=device-agent")


@pytest.mark.parametrize(
    ("section", "text", "cause"),
    [
        ("Service", "Restart=no", "does not come back"),
        ("Service", "Restart=on-failure", "does not come back"),
        ("Unit", "StartLimitIntervalSec=10", "gives it up"),
    ],
)
def test_an_agent_that_is_not_started_again(machine, section, text, cause):
    drop_in(machine, text, section)
    is_bad(machine.look("unit_restart"), "warning", cause, "systemctl edit")


def test_a_service_that_reads_another_configuration(machine):
    drop_in(machine, f"ExecStart=\nExecStart={PROGRAM} run --config=/etc/other.yaml")
    is_bad(machine.look("unit_config"), "warning", "/etc/other.yaml", "doctor --config")


def test_an_environment_that_goes_before_the_configuration_or_is_missing(machine):
    drop_in(machine, "Environment='DEVICE_AGENT_SERVICE__BASE_URL=https://other'")
    is_bad(machine.look("unit_environment"), "warning", "before the configuration file", "configuration file")
    drop_in(machine, "EnvironmentFile=-/etc/optional")
    is_bad(machine.look("unit_environment"), "warning", "before the configuration file", "configuration file")
    drop_in(machine, "EnvironmentFile=/etc/missing.env")
    is_bad(machine.look("unit_environment"), "failed", "/etc/missing.env does not exist", "create it")


def test_files_of_another_user_in_the_state_directory(machine):
    machine.values["state_dir"] = machine.state_dir
    (machine.state_dir / "agent.db").write_text("")
    is_ok(machine.look("state_owner"))
    machine.options["find_user"] = lambda _name: (54321, frozenset())
    finding = machine.look("state_owner")
    is_bad(finding, "failed", "started by hand as root", "chown -R device-agent")
    assert "2 in all" in finding.seen


def test_a_state_directory_that_the_sandbox_makes_read_only(machine):
    machine.values["state_dir"] = "/data/agent"
    is_bad(machine.look("sandbox_state"), "failed", "ProtectSystem=strict", "ReadWritePaths=/data/agent")
    drop_in(machine, "ReadWritePaths=-/data")
    is_ok(machine.look("sandbox_state"))


def test_a_device_file_that_the_sandbox_hides(machine):
    machine.values["sensors"] = [{"name": "t", "type": "file", "settings": {"path": "/dev/i2c-1"}}]
    is_bad(machine.look("sandbox_devices"), "failed", "PrivateDevices=yes", "DeviceAllow=/dev/i2c-1")
    drop_in(machine, "PrivateDevices=no")
    is_bad(machine.look("sandbox_devices"), "failed", "DevicePolicy=closed", "DeviceAllow=/dev/i2c-1")
    drop_in(machine, "DeviceAllow=/dev/i2c-1 rw")
    is_ok(machine.look("sandbox_devices"), "/dev/i2c-1")


def test_a_program_in_a_home_directory_that_the_sandbox_hides(machine):
    machine.values["executables"] = {"valve": {"argv": ["/run/user/1000/valve"]}}
    is_bad(machine.look("sandbox_home"), "failed", "ProtectHome=yes", "/usr/local/bin")
    drop_in(machine, "ProtectHome=no")
    is_ok(machine.look("sandbox_home"))


@pytest.mark.parametrize(
    "text",
    ["RestrictAddressFamilies=\nRestrictAddressFamilies=AF_UNIX", "PrivateNetwork=yes", "IPAddressDeny=any"],
)
def test_a_sandbox_without_network(machine, text):
    drop_in(machine, text)
    is_bad(machine.look("sandbox_network"), "failed", "closes the network", "drop-in")


def test_the_records_are_of_the_units_that_are_recorded():
    assert sorted(path.name for path in RECORDS.iterdir()) == ["systemd-252", "systemd-257"]
