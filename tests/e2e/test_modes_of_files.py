"""Every program under ``umask 000``: nobody but the owner writes what it made, nor reads what holds a secret."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.wire.sending import SendCommand
from simulator.fleet.target.local import read_local
from tests.conftest import require_program
from tests.e2e.agent_bench import wait_until
from tests.fault.gateway_rig import GatewayRig
from tests.fault.rig import API_KEY
from tests.mosquitto import find_mosquitto

pytestmark = pytest.mark.long

SOON_S = 60.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
# A manufacturer's key, a device's token, a private key, a label's secret, and what the test gives for one.
_SECRET = re.compile(rb"msk_\w{6}|dat_[0-9A-Za-z]{32}|PRIVATE KEY-----|Canary")
_PLAIN = ("--no-tls", "--standalone")


@dataclass(frozen=True)
class Stage:
    """A running service with keys, and a device of it."""

    url: str
    key: Path
    device_id: str
    product_id: str

    @property
    def way(self) -> tuple[str, ...]:
        return (f"--base-url={self.url}", *self.keys)

    @property
    def keys(self) -> tuple[str, ...]:
        return (f"--api-key={API_KEY}", f"--secret-key-file={self.key}")


AGENT, GATEWAY, SIMULATOR = "agent.cli", "gateway.cli", "simulator.cli"
Words = Callable[[Stage], tuple[str, ...]]

# What each program is called with in a folder of its own, one after the other.
PROGRAMS: dict[str, tuple[tuple[str, Words], ...]] = {
    "agent": (
        (AGENT, lambda s: ("init", "--dir=device/agent", f"--base-url={s.url}", f"--device-id={s.device_id}",
                           "--state-dir=state/agent", "--transport=http", "--allow-secret-key-on-device")),
        (AGENT, lambda _: ("keys", "make", "operator")),
        (AGENT, lambda _: ("diagnostics", "--config=device/agent/config.yaml", "--dir=bundles")),
    ),
    "gateway": (
        (GATEWAY, lambda s: ("init", "--dir=gateway", f"--base-url={s.url}", "--host=127.0.0.1",
                           "--state-dir=state/gateway", "--mqtt")),
        (GATEWAY, lambda _: ("certificates", "--host=127.0.0.1", "--dir=tls")),
        (GATEWAY, lambda _: ("devices", "add", "--config=gateway/config.yaml", "--device-id=d1", "--no-check",
                           "--url=http://127.0.0.1:1", "--plain", "--config-out=handout/d1")),
        (GATEWAY, lambda _: ("devices", "add", "--config=gateway/config.yaml", "--device-id=d2", "--no-check",
                           "--url=http://127.0.0.1:1", "--plain", "--qr-png=d2.png")),
        (GATEWAY, lambda _: ("broker-config", "--config=gateway/config.yaml", "--conf=broker/mosquitto.conf",
                           "--dir=broker/files", "--password-file=password", *_PLAIN)),
        (GATEWAY, lambda _: ("devices", "rotate", "--config=gateway/config.yaml", "d1")),
    ),
    "labels": (
        (SIMULATOR, lambda _: ("labels", "keygen", "--kind=hmac-sha256", "--out=label.key")),
        (SIMULATOR, lambda s: ("labels", "make", f"--product-id={s.product_id}", "--count=2", "--out=labels/sheet",
                               "--sign-key-file=label.key", "--ledger=ledger/serials")),
        (SIMULATOR, lambda _: ("labels", "corpus", "--out=labels/corpus")),
        (SIMULATOR, lambda _: ("labels", "style", "some text", "--out=styled.png")),
        (SIMULATOR, lambda _: ("labels", "verify", "labels/sheet", "--annotate=boxes", "--csv=table.csv")),
        (SIMULATOR, lambda _: ("labels", "damage", "labels/sheet", "--kinds=blur", "--severities=0.2", "--no-flip",
                               "--out=labels/damaged", "--must-fail=labels/unreadable")),
    ),
    "onboarding": (
        (SIMULATOR, lambda s: ("onboard", "cases", *s.way, "--only=register*", "--out=cases/run")),
        (SIMULATOR, lambda s: ("onboard", "profile", *s.way, "profiles/server.yaml")),
        (SIMULATOR, lambda s: ("labels", "make", f"--product-id={s.product_id}", "--count=2", "--out=sheet",
                               "--ledger=serials")),
        (SIMULATOR, lambda s: ("onboard", "labels", *s.way, "sheet", "--user-id=u1", "--remove", "--out=driven/run")),
        (SIMULATOR, lambda s: ("onboard", "campaign", *s.way, "sheet", "--user-id=u1", "--out=campaign/run")),
    ),
    "fleet": (
        (SIMULATOR, lambda _: ("init", "--from=smoke", "--out=smoke.yaml")),
        (SIMULATOR, lambda s: ("run", "smoke.yaml", *s.way, "--out=runs/one", "--quiet")),
        (SIMULATOR, lambda s: ("audit", "runs/one", *s.way)),
        (SIMULATOR, lambda _: ("report", "runs/one")),
        (SIMULATOR, lambda _: ("compare", "runs/one", "runs/one", "--anyway", "--html=compared.html",
                               "--junit=compared.xml")),
    ),
    "operator": (
        (AGENT, lambda _: ("keys", "make", "operator")),
        (SIMULATOR, lambda s: ("command", "send", *s.way, f"--device={s.device_id}", '--payload={"command":"ping"}',
                               "--sign=operator.key")),
        (SIMULATOR, lambda s: ("probe", s.url, *s.keys, "--html=probe.html")),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
    """A service, started with the mask that holds nothing back; its gateway and agent wait to be started."""
    before = os.umask(0)
    try:
        with GatewayRig(tmp_path_factory.mktemp("rig"), find_mosquitto() or require_program("mosquitto")) as rig:
            yield rig
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def stage(rig: GatewayRig) -> Stage:
    with rig.client() as client:
        product_id = next(iter(client.products())).product_id
        return Stage(str(client.connection.base_url), rig.folder / "secret_key", rig.device_id, product_id)


def faults_below(*tops: Path) -> list[str]:
    """What others than the owner can write, and what holds a secret and others can read."""
    faults = []
    for top in tops:
        for path in [top, *top.rglob("*")]:
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
                continue
            shown = f"{stat.filemode(status.st_mode)} {path.relative_to(top.parent)}"
            if status.st_mode & _OTHERS_WRITE:
                faults.append(f"others write {shown}")
            if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS_READ and _SECRET.search(path.read_bytes()):
                faults.append(f"others read a secret in {shown}")
    return faults


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_makes_is_its_owners_alone_to_write_and_its_secrets_to_read(name, stage, tmp_path):
    folder = tmp_path / "made"
    folder.mkdir(mode=0o700)
    for module, words in PROGRAMS[name]:
        done = subprocess.run(
            [sys.executable, "-m", module, *words(stage)],
            cwd=folder,
            umask=0,
            capture_output=True,
            text=True,
            timeout=4 * SOON_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in {0, 1, 3}, (words(stage), done.stdout, done.stderr)
    assert len(list(folder.rglob("*"))) > len(PROGRAMS[name]) - 1
    assert faults_below(folder) == []


@pytest.mark.timeout(180)
def test_what_service_gateway_and_agent_make_while_they_run_is_their_owners_alone(rig):
    rig.start_gateway()
    rig.wait_for_gateway()
    rig.start_agent()
    with rig.client() as client:
        payload = {"command": "append", "seconds": 0}
        sent = client.send_command(SendCommand(device_id=rig.device_id, command_payload=payload)).id
        wait_until(lambda: any(client.sensor_data(device_id=rig.device_id)), SOON_S)
        wait_until(lambda: sent in rig.runs(), SOON_S)
    made = [rig.folder / name for name in ("data", "state", "gateway", "effects.jsonl", "witness.jsonl")]
    rig.agent.kill()  # they work without a rest, and the next test needs neither
    rig.gateway.kill()
    assert all(path.exists() for path in made)
    assert faults_below(*made) == []


@pytest.mark.timeout(180)
def test_what_up_makes_while_it_runs_is_its_owners_alone(tmp_path):
    """Keys, tokens, databases, the broker's files and logs of all its programs."""
    require_program("mosquitto")
    folder = tmp_path / "made"
    folder.mkdir(mode=0o700)
    words = ("up", "--data=up", "--port=0", "--gateway-port=0", "--gateway")
    up = subprocess.Popen(
        [sys.executable, "-m", SIMULATOR, *words],
        cwd=folder,
        umask=0,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _stands(folder / "up"), SOON_S)
        assert len(list(folder.rglob("*"))) > 10
        assert faults_below(folder) == []
    finally:
        up.terminate()
        assert up.wait(SOON_S) == 0
    assert faults_below(folder) == []


def _stands(folder: Path) -> bool:
    with contextlib.suppress(ConfigurationError):
        return bool(read_local(folder).broker_port)
    return False
