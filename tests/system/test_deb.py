"""The Debian packages on a Debian that boots: installed by apt without a network, used, upgraded, removed, purged.

``SYSTEMD_RELEASE=13`` boots Debian 13 with its Python 3.13 instead of Debian 12. The packages are built here, which
downloads the pinned wheels.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent.wire.models import CommandRecord
from tests.conftest import do_without, require_program
from tests.support.debian_tree import shared_tree
from tests.support.nspawn import Container
from tests.support.processes import run_program
from tests.system.agent_bench import AgentBench
from tests.system.fault.update_device import serving
from tests.system.test_gateway_journey import travelling
from tools.build_release import write_release

# Wheels are downloaded and a Debian is made within the first test's time.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("deb"), pytest.mark.long]

ROOT = Path(__file__).parents[2]
UNIT = "device-agent.service"
CONFIG = "/etc/device-agent/config.yaml"
STATE = "/var/lib/device-agent/agent.db"


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    for program, package in (("mmdebstrap", None), ("systemd-nspawn", "systemd-container"), ("dpkg-deb", "dpkg")):
        require_program(program, package)
    if os.geteuid() != 0:
        do_without("a container is booted, which only root may do", "run the build as root")
    run_id = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with shared_tree(run_id, os.environ.get("SYSTEMD_RELEASE", "12")) as made:
        yield made


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """This machine's packages, as ``make deb`` builds them, and the agent's once more as the next version."""
    folder = tmp_path_factory.mktemp("deb")
    architecture = subprocess.run(("dpkg", "--print-architecture"), capture_output=True, text=True, check=True)
    build = (sys.executable, "tools/build_deb.py", "--architecture", architecture.stdout.strip(), "--level", "0")
    run_program([*build, "--out", folder], code=0, cwd=ROOT, timeout=None)
    (agent,) = folder.glob("device-agent_*.deb")
    unpacked = folder / "unpacked"
    subprocess.run(("dpkg-deb", "--raw-extract", str(agent), str(unpacked)), check=True)
    control = unpacked / "DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 9."))
    subprocess.run(("dpkg-deb", "-Znone", "--build", str(unpacked), str(folder / "next.deb")), check=True)
    shutil.rmtree(unpacked)
    return folder


@pytest.fixture
def machine(tree) -> Iterator[Container]:
    with (
        tempfile.TemporaryDirectory(prefix="device-agent-root-") as folder,
        Container(tree, Path(folder)) as booted,
    ):
        # The product that other tests find in this tree.
        booted.run("rm", "-rf", "/opt/device-agent", "/opt/systemd")
        yield booted


def install(machine: Container, package: Path) -> str:
    """``apt install ./FILE``, and no way to an archive."""
    place = f"/root/{package.name}"
    machine.copy_in(package, place)
    return machine.run("apt-get", "--quiet", "--yes", "install", place)


def test_a_package_is_installed_used_upgraded_removed_and_purged(machine, packages, bench):
    (package,) = packages.glob("device-agent_*.deb")

    # Enabled, and not started: there is no configuration yet.
    install(machine, package)
    assert machine.run("systemctl", "is-enabled", UNIT) == "enabled"
    assert machine.show(UNIT, "ActiveState") == "inactive"
    machine.run("systemctl", "start", UNIT)
    assert machine.show(UNIT, "ConditionResult") == "no"
    version = machine.run("device-agent", "--version")
    assert version.split()[-1] == machine.run("dpkg-query", "--show", "--showformat=${Version}", "device-agent")
    assert machine.ask("getent", "passwd", "device-agent")

    # With a configuration it works, and its store is in the state folder.
    bench.configure(machine, sensors=[{"name": "board", "type": "system", "interval_s": 3600}])
    machine.run("systemctl", "start", UNIT)

    def done(command_id: str) -> bool:
        return bench.commands()[command_id].status == "succeeded"

    first = bench.send(command="ping")
    machine.wait_until(lambda: done(first), "a command is done")
    machine.wait_until(lambda: list(bench.client.sensor_data(bench.device_id)), "a reading arrives")
    assert not machine.show(UNIT, "FragmentPath").startswith("/etc")
    findings = machine.ask("device-agent", "doctor", "--json")
    assert '"failed"' not in findings, findings

    # Upgraded while it runs: another process, the same state.
    before = machine.show(UNIT, "MainPID")
    waiting = bench.send(command="ping")
    install(machine, packages / "next.deb")
    assert machine.show(UNIT, "MainPID") not in {before, "0"}
    machine.wait_until(lambda: done(waiting), "a command that came before the upgrade is done")

    # Removed: configuration and state stay. Installed again it goes on, with what was enabled beside it.
    enabled = ("device-agent-reboot.timer", "device-agent-update.path")
    machine.run("systemctl", "enable", "--now", *enabled)
    machine.run("apt-get", "--quiet", "--yes", "remove", "device-agent")
    assert machine.show(UNIT, "ActiveState") == "inactive"
    for kept in (CONFIG, "/etc/device-agent/secret_key", STATE):
        machine.run("test", "-e", kept)
    assert machine.ask("ls", "/usr/lib/device-agent", "/usr/bin/device-agent").count("No such file") == 2
    install(machine, package)
    later = bench.send(command="ping")
    machine.wait_until(lambda: done(later), "it goes on after being installed again")
    assert {unit: machine.show(unit, "ActiveState") for unit in enabled} == dict.fromkeys(enabled, "active")

    machine.run("apt-get", "--quiet", "--yes", "purge", "device-agent")
    gone = ("/etc/device-agent", "/var/lib/device-agent", "/usr/lib/device-agent")
    assert machine.ask("ls", *gone).count("No such file") == len(gone)
    assert machine.ask("systemctl", "is-enabled", UNIT) != "enabled"


def release_of(packages: Path, folder: Path, version: str, key: Ed25519PrivateKey, more: str = "") -> Path:
    """A release with what the package has, under another version; ``more`` is run by its every program."""
    (package,) = packages.glob("device-agent_*.deb")
    tree = folder / version
    subprocess.run(("dpkg-deb", "--extract", str(package), str(tree)), check=True)
    library = tree / "usr/lib/device-agent"
    says = json.loads((library / "release.json").read_text())
    (library / "release.json").unlink()
    for path, old, new in (
        ("app/version.py", says["version"], version),
        ("__init__.py", "import annotations\n", f"import annotations\n{more}\n"),
    ):
        text = (library / "common/agent" / path).read_text()
        assert old in text
        (library / "common/agent" / path).write_text(text.replace(old, new, 1))
    (metadata,) = library.glob("common/device_agent-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace(f"\nVersion: {says['version']}\n", f"\nVersion: {version}\n"))
    says |= {"version": version, "downgrade": False}
    path = folder / f"{version}.release"
    write_release(library, path, key, says, epoch=1_700_000_000, preset=0)
    shutil.rmtree(tree)
    return path


@dataclass
class Updates:
    """A device with the package and a maker's key, its service, and a place for releases."""

    machine: Container
    bench: AgentBench
    key: Ed25519PrivateKey
    folder: Path
    address: str

    def send(self, release: Path) -> CommandRecord:
        """``update_agent``, and how it ended."""
        shutil.copy(release, self.folder)
        sha256 = hashlib.sha256(release.read_bytes()).hexdigest()
        order = self.bench.send(command="update_agent", url=f"{self.address}/{release.name}", sha256=sha256)

        def ended() -> CommandRecord | None:
            record = self.bench.commands()[order]
            return record if record.status in {"succeeded", "failed", "rejected", "indeterminate"} else None

        found: CommandRecord = self.machine.wait_until(ended, f"{release.name} is kept or taken back", 180)
        return found

    def limit(self, *, deadline_s: int) -> None:
        limits = {"PROBATION_S": 3, "DEADLINE_S": deadline_s, "MAX_STARTS": 2}
        words = " ".join(f"DEVICE_AGENT_UPDATE_{name}={value}" for name, value in limits.items())
        folder = "/etc/systemd/system/device-agent-update.service.d"
        self.machine.write(f"{folder}/limits.conf", f"[Service]\nEnvironment={words}\n")
        self.machine.run("systemctl", "daemon-reload")

    def answers(self) -> None:
        ping = self.bench.send(command="ping")
        self.machine.wait_until(lambda: self.bench.commands()[ping].status == "succeeded", "it answers", 120)

    def runs(self) -> str:
        return self.machine.run("readlink", "/var/lib/device-agent-releases/current")


@pytest.fixture
def updates(machine, packages, bench, tmp_path) -> Iterator[Updates]:
    (tmp_path / "files").mkdir()
    key = Ed25519PrivateKey.generate()
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    (package,) = packages.glob("device-agent_*.deb")
    install(machine, package)
    machine.write("/etc/device-agent/release-keys/maker.pub", pem)
    bench.configure(machine)
    machine.run("systemctl", "enable", "--now", "device-agent-update.path")
    machine.run("systemctl", "start", UNIT)
    with serving(tmp_path / "files") as address:
        made = Updates(machine, bench, key, tmp_path / "files", address)
        made.limit(deadline_s=60)
        yield made


def test_a_release_proves_itself_and_stays_and_a_bad_one_goes_back(machine, packages, updates, tmp_path):
    # Kept: another version runs, from its own folder. What root types is the package's still.
    packaged = machine.run("device-agent", "--version")
    good = release_of(packages, tmp_path, "9.0.0", updates.key)
    record = updates.send(good)
    log = machine.ask("journalctl", "--no-pager", "--output=cat", "--unit=device-agent-*")
    assert record.status == "succeeded", (record, log)
    assert updates.runs() == "9.0.0"
    assert machine.as_user("device-agent", "device-agent", "--version").split()[-1] == "9.0.0"
    assert machine.run("device-agent", "--version") == packaged
    assert "already_installed" in str(updates.send(good))

    # Taken back: the version before runs again by itself, and answers.
    dies = "import sys\nif 'run' in sys.argv:\n    raise SystemExit(1)"
    record = updates.send(release_of(packages, tmp_path, "9.1.0", updates.key, dies))
    assert record.status == "failed", record
    assert "rolled_back: version 9.1.0: 2 starts" in str(record)
    assert updates.runs() == "9.0.0"
    updates.answers()
    assert '"failed"' not in machine.ask("device-agent", "doctor", "--json")

    # One that is never ready goes back at the deadline: systemd itself would wait for it without an end.
    updates.limit(deadline_s=12)
    sleeps = "import sys\nif 'run' in sys.argv:\n    import time\n    time.sleep(10_000)"
    record = updates.send(release_of(packages, tmp_path, "9.1.1", updates.key, sleeps))
    assert record.status == "failed", record
    assert "does not say that it is ready" in str(record)
    assert updates.runs() == "9.0.0"
    updates.limit(deadline_s=60)

    # By hand, and the power is cut in the middle of the trial.
    by_hand = "/srv/9.2.0.release"
    machine.copy_in(release_of(packages, tmp_path, "9.2.0", updates.key), by_hand)
    machine.run("env", "DEVICE_AGENT_UPDATE_PROBATION_S=3", "device-agent", "update", "--file", by_hand)
    machine.ask("systemctl", "--force", "--force", "reboot")
    machine.wait_for_reboot()
    state = "/var/lib/device-agent-releases/state.json"
    machine.wait_until(lambda: json.loads(machine.run("cat", state))["phase"] == "kept", "9.2.0 is kept", 120)
    updates.answers()
    folders = machine.run("find", "/var/lib/device-agent-releases", "-mindepth", "1", "-maxdepth", "1", "-type", "d")
    assert {Path(each).name for each in folders.split()} == {"9.0.0", "9.2.0"}

    machine.run("apt-get", "--quiet", "--yes", "purge", "device-agent")
    assert "No such file" in machine.ask("ls", "/var/lib/device-agent-releases")


def test_two_commands_lead_from_a_bare_system_to_the_first_command(machine, packages, tmp_path):
    """Those of docs/install.md; the gateway with its certificate runs outside, on this machine's loopback."""
    with travelling(tmp_path) as journey:
        journey.set_up()
        journey.start()
        url = f"https://127.0.0.1:{journey.port}"
        terms = ("--product-id", journey.product_id, "--user-id", "me", "--url", url)
        code = json.loads(journey.run("devices", "invite", "--json", *terms))["code"]
        (package,) = packages.glob("device-agent_*.deb")

        install(machine, package)
        said = machine.run("device-agent", "enroll", url, code)

        assert "the service runs" in said
        assert machine.show(UNIT, "ActiveState") == "active"
        assert machine.run("stat", "--format=%U %a", "/etc/device-agent/token") == "device-agent 600"
        (device,) = journey.client.devices()
        # By default it is the machine's own: there is no board with a serial number here.
        assert device.device_identifier == machine.run("cat", "/etc/machine-id")
        journey.ping(device.device_id)
        assert '"failed"' not in machine.ask("device-agent", "doctor", "--json")

        # A code for new devices does not replace its token; with --replace the operator says that it is this one.
        again = json.loads(journey.run("devices", "invite", "--json", *terms))["code"]
        assert "holds a valid token" in machine.ask("device-agent", "enroll", url, again)
        journey.ping(device.device_id)
        again = json.loads(journey.run("devices", "invite", "--replace", "--json", *terms))["code"]
        assert "kept /etc/device-agent/config.yaml" in machine.run("device-agent", "enroll", url, again)
        journey.ping(device.device_id)
        assert [each.device_id for each in journey.client.devices()] == [device.device_id]


def test_the_gateway_has_a_package_too(machine, packages):
    (package,) = packages.glob("device-gateway_*.deb")
    install(machine, package)
    assert machine.run("systemctl", "is-enabled", "device-gateway.service") == "enabled"
    assert machine.show("device-gateway.service", "ActiveState") == "inactive"
    assert "Usage: device-gateway run" in machine.run("device-gateway", "run", "--help")
    # Its compiled libraries are those of this system's Python.
    own = "'/usr/lib/device-gateway/cp%d%d' % sys.version_info[:2]"
    path = f"import sys; sys.path[:0] = [{own}, '/usr/lib/device-gateway/common']"
    imports = "import gateway.run, uvloop, httptools, cryptography.hazmat.primitives.asymmetric.ed25519, qrcode"
    machine.run("python3", "-I", "-c", f"{path}; {imports}")
    # The broker, here a unit that notes each reload, learns of a new device by itself once the path unit is enabled.
    broker = (
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\nExecReload=sh -c 'echo again >> /run/reloads'\n"
    )
    machine.write("/etc/systemd/system/mosquitto.service", broker)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "mosquitto")
    machine.run("device-gateway", "init", "--base-url", "https://api.example.com/v1", "--mqtt")
    machine.run("device-gateway", "broker-config")
    machine.run("systemctl", "enable", "--now", "device-gateway-broker.path")
    machine.run("device-gateway", "devices", "add", "--no-check", "--device-id", "d1")
    machine.wait_until(lambda: machine.ask("cat", "/run/reloads") == "again", "the broker is reloaded")
    passwords = "/etc/mosquitto/device-gateway/passwords"
    assert machine.run("cut", "-d:", "-f1", passwords).split() == ["d1", "gateway"]
    machine.run("device-gateway", "devices", "revoke", "d1")
    machine.wait_until(lambda: machine.run("cut", "-d:", "-f1", passwords) == "gateway", "a revoked device is gone")
    assert machine.ask("systemctl", "is-failed", "device-gateway-broker.service") != "failed"
    machine.run("apt-get", "--quiet", "--yes", "purge", "device-gateway")


def test_the_same_commit_gives_the_same_bytes_and_lintian_finds_no_error(packages, tmp_path):
    require_program("lintian")
    (package,) = packages.glob("device-agent_*.deb")
    architecture = package.stem.rpartition("_")[2]
    build = (sys.executable, "tools/build_deb.py", "--architecture", architecture, "--package", "device-agent")
    build = (*build, "--level", "0")
    run_program([*build, "--out", tmp_path], code=0, cwd=ROOT, timeout=None)
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()
    for built in packages.glob("device-*.deb"):
        run_program(["lintian", "--fail-on", "error", built], code=0)
