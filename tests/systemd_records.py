"""What a real systemd prints of the agent's unit, recorded for the tests of ``device-agent doctor``.

Run it with ``make systemd-records``: it boots Debian 12 and 13 (needs root, systemd-container and mmdebstrap).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent.doctor.installed import unit_cat, unit_show
from tests.debian_tree import REPOSITORY, SUITES, copy_bare_debian
from tests.nspawn import Container

UNIT = "device-agent.service"
RECORDS = REPOSITORY / "tests/unit/agent/doctor/systemd_records"
SYSTEMD = {"12": "252", "13": "257"}
_PROGRAM = "#!/bin/sh\nsystemd-notify --ready\nexec sleep infinity\n"
_NOTIFY = "NotifyAccess=all\n"
_TOKEN_ALONE = "LoadCredential=\nSetCredential=\nLoadCredential=token:/etc/device-agent/token\n"


def main() -> None:
    """Boot each release and record it."""
    for release in SUITES:
        folder = RECORDS / f"systemd-{SYSTEMD[release]}"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="device-agent-records-") as place:
            tree = Path(place, "tree")
            copy_bare_debian(tree, release)
            with Container(tree, Path(place)) as machine:
                assert f"systemd {SYSTEMD[release]} " in machine.run("systemctl", "--version")
                _record(machine, folder)


def _record(machine: Container, folder: Path) -> None:
    unit = (REPOSITORY / "systemd" / UNIT).read_text()
    users = (REPOSITORY / "systemd/sysusers.d/device-agent.conf").read_text()
    machine.write("/usr/lib/sysusers.d/device-agent.conf", users)
    machine.run("systemd-sysusers")
    machine.write("/opt/device-agent/bin/device-agent", _PROGRAM, 0o755)
    _keep(machine, folder, "not_installed")
    machine.write(f"/etc/systemd/system/{UNIT}", unit)
    _drop_in(machine, _NOTIFY + _TOKEN_ALONE + "RestartSec=1h\n")
    machine.ask("systemctl", "start", UNIT)
    _keep(machine, folder, "token_missing")
    machine.run("systemctl", "stop", UNIT)
    machine.write("/etc/device-agent/token", "dat_recorded", 0o600)
    machine.run("systemctl", "enable", "--now", UNIT)
    _keep(machine, folder, "token_drop_in", unit=True)
    machine.run("systemctl", "disable", "--now", UNIT)
    _keep(machine, folder, "disabled")
    _drop_in(machine, _NOTIFY)
    machine.run("systemctl", "enable", "--now", UNIT)
    _keep(machine, folder, "as_shipped", unit=True)
    found = machine.run("systemctl", "show", UNIT, "--property=LoadCredential,LoadCredentialEncrypted,SetCredential")
    (folder / "credentials.show.txt").write_text(found + "\n")
    # Changed, and systemd has not read it again.
    machine.write(f"/etc/systemd/system/{UNIT}.d/local.conf", f"[Service]\n{_NOTIFY}{_TOKEN_ALONE}")
    _keep(machine, folder, "not_reloaded")


def _drop_in(machine: Container, text: str) -> None:
    machine.write(f"/etc/systemd/system/{UNIT}.d/local.conf", f"[Service]\n{text}")
    machine.run("systemctl", "daemon-reload")


def _keep(machine: Container, folder: Path, state: str, *, unit: bool = False) -> None:
    (folder / f"{state}.show.txt").write_text(machine.run(*unit_show(UNIT)) + "\n")
    if unit:
        (folder / f"{state}.cat.txt").write_text(machine.run(*unit_cat(UNIT)) + "\n")


if __name__ == "__main__":
    main()
