"""The arm64 package on an emulated machine that boots Debian's arm64 kernel: ``make emulated-test``.

A boot and all that follows take half an hour; the first time some ten minutes more, for its Debian. The figures that it
prints stand in docs/operations.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent.wire.commands import CommandRecord
from agent.wire.sending import SendCommand
from tests.arm64_machine import HOST, PROGRAMS, Arm64Machine, disk_of, image
from tests.conftest import do_without, require_program
from tests.e2e.test_deb import release_of
from tests.e2e.test_gateway_journey import Journey, travelling
from tests.fault.update_device import serving

pytestmark = [pytest.mark.timeout(7200), pytest.mark.long]

ROOT = Path(__file__).parents[2]
UNIT = "device-agent.service"
GONE = ("/etc/device-agent", "/usr/lib/device-agent", "/var/lib/device-agent", "/var/lib/device-agent-releases")
_SLOW_S = 1800.0
_FINAL = {"succeeded", "failed", "rejected", "indeterminate"}
_HELPER = 'allow = ["update"]\n[update]\nprobation_s = 10\ndeadline_s = 1200\nmax_starts = 2\n'
_DIES = "import sys\nif 'run' in sys.argv:\n    raise SystemExit(1)"


@pytest.fixture
def files(tmp_path) -> Path:
    """A folder with the arm64 package of the agent, and two releases of it: one good, one that dies at its start."""
    if not os.environ.get("EMULATED"):
        pytest.skip("make emulated-test plays it: the emulated machine takes half an hour")
    for program, package in PROGRAMS.items():
        require_program(program, package)
    if os.geteuid() != 0:
        do_without("an arm64 Debian is made, which only root may do", "run it as root")
    folder = tmp_path / "files"
    build = (sys.executable, "tools/build_deb.py", "--architecture", "arm64", "--package", "device-agent")
    done = subprocess.run((*build, "--out", str(folder)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    key = Ed25519PrivateKey.generate()
    release_of(folder, folder, "9.0.0", key)
    release_of(folder, folder, "9.1.0", key, _DIES)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "maker.pub").write_bytes(pem)
    (folder / "device-agent-helper.toml").write_text(_HELPER)
    return folder


class Emulated:
    """The machine, enrolled, and its device at the service."""

    def __init__(self, machine: Arm64Machine, journey: Journey, device_id: str) -> None:
        self.machine = machine
        self._journey = journey
        self._device_id = device_id

    def send(self, **payload: object) -> CommandRecord:
        """A command, once it has ended."""
        order = SendCommand(device_id=self._device_id, command_payload=payload)
        command = self._journey.client.send_command(order)

        def ended() -> CommandRecord | None:
            records = {each.id: each for each in self._journey.client.device_commands(self._device_id).records}
            return records[command.id] if records[command.id].status in _FINAL else None

        found: CommandRecord = self.machine.wait_until(ended, f"{payload['command']} has ended", _SLOW_S)
        return found

    def update(self, release: Path, address: str) -> CommandRecord:
        """``update_agent``, and how it ended."""
        sha256 = hashlib.sha256(release.read_bytes()).hexdigest()
        return self.send(command="update_agent", url=f"{address}/{release.name}", sha256=sha256)

    def readings(self) -> int:
        return len(list(self._journey.client.sensor_data(self._device_id)))

    def figures(self) -> tuple[float, float]:
        """Of an agent that was started, answered and rests: PSS in MiB, and seconds from its start until READY."""
        self.machine.run(f"systemctl restart {UNIT}")
        assert self.send(command="ping").status == "succeeded"
        names = ("MainPID", "ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
        pid, begun, ready = (self.machine.run(f"systemctl show --value --property={name} {UNIT}") for name in names)
        pss = self.machine.run(f"awk '/^Pss:/ {{print $2}}' /proc/{pid}/smaps_rollup")
        return int(pss) / 1024, (int(ready) - int(begun)) / 1e6

    def runs(self) -> str:
        return self.machine.run("device-agent --version").split()[-1]

    def is_sound(self) -> None:
        found = json.loads(self.machine.ask("device-agent doctor --json"))
        assert not [each for each in found if each["verdict"] == "failed"]


def test_the_package_works_on_an_arm64_machine(files, tmp_path, capsys):
    with travelling(tmp_path) as journey, serving(files) as served:
        journey.set_up("--host", HOST)
        journey.start()
        url = f"https://{HOST}:{journey.port}"
        terms = ("--product-id", journey.product_id, "--user-id", "me", "--url", url)
        code = json.loads(journey.run("devices", "invite", "--json", "--expires", "6h", *terms))["code"]
        disk_of(files, tmp_path / "files.img", "256M")
        with Arm64Machine(image(), tmp_path / "files.img") as machine:
            assert machine.run("uname -m") == "aarch64"
            # The two commands of docs/install.md, and the first command.
            begun_s = time.monotonic()
            machine.run("cd /mnt && apt install --quiet --yes ./device-agent_*.deb")
            installed_s = time.monotonic()
            assert machine.ask(f"systemctl is-enabled {UNIT}") == "enabled"
            assert "the service runs" in machine.run(f"device-agent enroll {url} {code}")
            (device,) = journey.client.devices()
            emulated = Emulated(machine, journey, device.device_id)
            assert emulated.send(command="ping").status == "succeeded"
            done_s = time.monotonic()
            machine.wait_until(emulated.readings, "a reading is stored", _SLOW_S)
            pss_mib, ready_s = emulated.figures()
            emulated.is_sound()
            package = emulated.runs()

            # A release that stays, and one that goes back by itself.
            machine.run("install -m 644 /mnt/maker.pub /etc/device-agent/release-keys/")
            machine.run("install -m 644 /mnt/device-agent-helper.toml /etc/")
            machine.run("systemctl enable --now device-agent-helper.path")
            address = served.replace("127.0.0.1", HOST)
            record = emulated.update(files / "9.0.0.release", address)
            log = machine.ask("journalctl --no-pager --output=cat --unit='device-agent*'")
            assert record.status == "succeeded", (record, log)
            assert emulated.runs() == "9.0.0" != package
            record = emulated.update(files / "9.1.0.release", address)
            assert record.status == "failed", record
            assert "rolled_back: version 9.1.0: 2 starts" in str(record)
            assert emulated.runs() == "9.0.0"
            assert emulated.send(command="ping").status == "succeeded"
            emulated.is_sound()

            machine.run("apt-get --quiet --yes purge device-agent")
            assert machine.ask(f"ls -d {' '.join(GONE)}").count("No such file") == len(GONE)
        with capsys.disabled():
            sys.stderr.write(
                f"\nemulated arm64: apt {installed_s - begun_s:.0f} s, to the first command {done_s - begun_s:.0f} s; "
                f"PSS {pss_mib:.1f} MiB, ready after {ready_s:.1f} s\n"
            )
