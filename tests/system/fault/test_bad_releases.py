"""Releases that are no good: each goes back by itself, and its command says why in one line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.releases import Maker
from tests.system.agent_bench import AgentBench
from tests.system.fault.update_device import Device, serving

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

ANSWERS_WITHIN_S = 120.0
LIMITS = {"probation_s": 2, "deadline_s": 90, "max_starts": 2}
"""Two starts end long before the deadline, however slow the machine is."""


@dataclass(frozen=True, slots=True)
class World:
    """What all devices share.

    Attributes:
        maker: of the releases.
        service: its address.
        files: the address of the releases.
    """

    maker: Maker
    service: str
    files: str


@pytest.fixture(scope="module")
def world(tmp_path_factory, service) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("releases")
    with serving(folder) as files:
        yield World(Maker(folder), service.base_url, files)


def update(world: World, bench: AgentBench, release: Path) -> str:
    sha256 = hashlib.sha256(release.read_bytes()).hexdigest()
    return bench.send(command="update_agent", url=f"{world.files}/{release.name}", sha256=sha256)


def at_import(tree: Path) -> None:
    _append(tree, "raise RuntimeError('no good')\n")


def hangs(tree: Path) -> None:
    """Once it is READY, has had an exchange and has said so: its main thread stands still, all others go on."""
    _when_run(
        tree,
        "import agent.runtime.supervisor as n, time\n"
        "say = n.Notifier.status\n"
        "def status(self, text):\n"
        "    say(self, text)\n"
        "    if 'commands ok' in text: time.sleep(10_000)\n"
        "n.Notifier.status = status\n",
    )


def takes_a_handler_away(tree: Path) -> None:
    """One that worked cannot be imported any more."""
    _when_run(tree, "import agent.handlers.basic as b\ndel b.SetInterval\n")


def takes_a_sensor_away(tree: Path) -> None:
    """It is there, and no read of it succeeds."""
    _when_run(
        tree,
        "import agent.sensors.basic as p\n"
        "def read(self): raise p.SensorFailed('this release does not know how')\n"
        "p.ProgramSensor.read = read\n",
    )


def _append(tree: Path, code: str) -> None:
    path = tree / "common/agent/__init__.py"
    path.write_text(path.read_text() + code)


def _when_run(tree: Path, code: str) -> None:
    """Code that runs when the agent's own life is about to begin."""
    lines = "".join(f"        {line}\n" for line in code.splitlines())
    _append(
        tree,
        "import sys\n"
        "class _Late:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name != 'agent.app.run' or self not in sys.meta_path:\n"
        "            return None\n"
        "        sys.meta_path.remove(self)\n"
        f"{lines}"
        "        return None\n"
        "sys.meta_path.insert(0, _Late())\n",
    )


@pytest.mark.parametrize("change", [at_import, hangs])
def test_a_release_that_does_not_prove_itself_goes_back(world, bench, tmp_path, change):
    release = world.maker.release("1.1.0", name=change.__name__, change=change)
    with Device(tmp_path / "device", world.maker, bench, world.service, LIMITS) as device:
        bench.wait_for(bench.send(command="append", seconds=0), "succeeded", within_s=ANSWERS_WITHIN_S)
        record = bench.wait_for(update(world, bench, release), within_s=ANSWERS_WITHIN_S)
        assert record.status == "failed", (record, device.log)
        assert "rolled_back: version 1.1.0" in str(record), record
        assert "starts with it did not last" in str(record), (record, device.log)
        bench.wait_for(bench.send(command="ping"), "succeeded", within_s=ANSWERS_WITHIN_S)
        assert device.state["phase"] == "rolled_back"
        assert not (device.root / "var/lib/device-agent-releases/current").exists()
        # The same release is not tried again by itself.
        again = bench.wait_for(update(world, bench, release), within_s=ANSWERS_WITHIN_S)
        assert again.status == "rejected"
        assert "taken_back_before" in str(again)


_FAILED_BEFORE = "- {name: lost, type: file, interval_s: 0.5, settings: {path: /nowhere, reading: x}}\n"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (takes_a_handler_away, "handler set_interval worked before and does not now"),
        (takes_a_sensor_away, "sensor witness worked before and does not now"),
    ],
)
def test_a_release_that_takes_a_handler_or_a_sensor_away_goes_back_and_names_it(
    world,
    bench,
    tmp_path,
    change,
    says,
):
    release = world.maker.release("1.1.0", name=change.__name__, change=change)
    limits = {**LIMITS, "deadline_s": 45} if change is takes_a_sensor_away else LIMITS
    with Device(tmp_path / "device", world.maker, bench, world.service, limits, _FAILED_BEFORE) as device:
        bench.wait_for(bench.send(command="append", seconds=0), "succeeded", within_s=ANSWERS_WITHIN_S)
        record = bench.wait_for(update(world, bench, release), within_s=ANSWERS_WITHIN_S)
        assert record.status == "failed", (record, device.log)
        assert says in str(record), (record, device.log)
        assert "lost" not in str(record)
        bench.wait_for(bench.send(command="append", seconds=0), "succeeded", within_s=ANSWERS_WITHIN_S)
