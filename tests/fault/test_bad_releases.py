"""Releases that are no good: each goes back by itself, and its command says why in one line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import do_without, require_program
from tests.fault.test_update_cuts import ANSWERS_WITHIN_S, bench, update, world  # noqa: F401 - fixtures
from tests.fault.update_device import Device
from tests.releases import program_members

ALL = "UPDATE_CUTS" in os.environ
"""``make update-cuts`` plays all of them."""

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

_LIMITS = {"probation_s": 2, "deadline_s": 90, "max_starts": 2}
"""Two starts end long before the deadline, however slow the machine is."""
_SOON = {**_LIMITS, "deadline_s": 6}
"""For what only the deadline ends."""


def at_import(tree: Path) -> None:
    _append(tree, "raise RuntimeError('no good')\n")


def never_ready(tree: Path) -> None:
    _append(tree, "import sys, time\nif 'run' in sys.argv:\n    time.sleep(600)\n")


def deaf(tree: Path) -> None:
    _when_run(
        tree,
        "import agent.runtime.command_poller as p\n"
        "p.CommandPoller.step = lambda self: setattr(self, '_due_s', self._clock.now().monotonic_s + 1)\n",
    )


def dies_later(tree: Path) -> None:
    _when_run(tree, "import os, threading\nthreading.Timer(1.2, lambda: os.kill(os.getpid(), 9)).start()\n")


def hangs(tree: Path) -> None:
    """Once it is READY, has had an exchange and has said so: its main thread stands still, all others go on."""
    _when_run(
        tree,
        "import agent.runtime.supervisor as s, time\n"
        "def note(self):\n"
        "    text = self._on_change()\n"
        "    self._notifier.status(text)\n"
        "    if 'commands ok' in text: time.sleep(10_000)\n"
        "s.Supervisor._write_status = note\n",
    )


def fills_the_disk(tree: Path) -> None:
    """With a file without a name: the room is there again when the process has ended."""
    _when_run(
        tree,
        "import os, pathlib\n"
        "where = pathlib.Path(sys.argv[-1]).parents[2] / 'var/lib/device-agent'\n"
        "taken = os.open(where, os.O_TMPFILE | os.O_WRONLY)\n"
        "try:\n"
        "    while os.write(taken, bytes(4096)): pass\n"
        "except OSError: pass\n",
    )


def newer_schema(tree: Path) -> None:
    _when_run(
        tree,
        "import agent.adapters.store.schema as s\n"
        "from dataclasses import replace\n"
        "import agent.adapters.sqlite_store as q\n"
        "steps = {**s.SCHEMA.steps, 5: 'CREATE TABLE more (x INTEGER)'}\n"
        "q.SCHEMA = s.SCHEMA = replace(s.SCHEMA, steps=steps, oldest_reader=4)\n"
        "import os, threading\nthreading.Timer(1.2, lambda: os.kill(os.getpid(), 9)).start()\n",
    )


def takes_a_handler_away(tree: Path) -> None:
    """One that worked cannot be imported any more."""
    _when_run(tree, "sys.modules['agent.handlers.built_in.set_interval'] = None\n")


def takes_a_program_away(tree: Path) -> None:
    """An executable of the configuration is a handler like any other: this release refuses its settings."""
    _when_run(
        tree,
        "import agent.handlers.executable as e\n"
        "e.ExecutableSettings.model_fields.pop('contract')\n"
        "e.ExecutableSettings.model_rebuild(force=True)\n",
    )


def takes_a_sensor_away(tree: Path) -> None:
    """It is there, and no read of it succeeds."""
    _when_run(
        tree,
        "import agent.sensors.program as p\n"
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


WAYS = [
    (newer_schema, _LIMITS, "starts with it did not last"),
    (deaf, {**_LIMITS, "deadline_s": 30}, "no exchange with the server"),
    (at_import, _LIMITS, "starts with it did not last"),
    (never_ready, _SOON, "does not say that it is ready"),
    (dies_later, _LIMITS, "starts with it did not last"),
    (hangs, _LIMITS, "starts with it did not last"),
]


@pytest.mark.parametrize("way", WAYS if ALL else WAYS[:1], ids=lambda way: way[0].__name__)
def test_a_release_that_does_not_prove_itself_goes_back_with_its_data(world, bench, tmp_path, way):  # noqa: F811
    change, limits, says = way
    schema = {"store": 5, "store_readable_by": 4} if change is newer_schema else program_members("1.1.0")["schema"]
    release = world.maker.release("1.1.0", name=change.__name__, change=change, schema=schema)
    with Device(tmp_path / "device", world.maker, world.service, bench.device_id, limits=limits) as device:
        bench.wait_for(bench.send(command="append", seconds=0), "succeeded", within_s=ANSWERS_WITHIN_S)
        order = update(world, bench, release)
        record = bench.wait_for(order, within_s=ANSWERS_WITHIN_S)
        assert record.status == "failed", (record, device.log)
        assert "rolled_back: version 1.1.0" in str(record), record
        assert says in str(record), (record, device.log)
        bench.wait_for(bench.send(command="ping"), "succeeded", within_s=ANSWERS_WITHIN_S)
        assert device.state["phase"] == "rolled_back"
        assert not (device.root / "var/lib/device-agent-releases/current").exists()
        # What it has taken in meanwhile is sent, and the same release is not tried again by itself.
        again = bench.wait_for(update(world, bench, release), within_s=ANSWERS_WITHIN_S)
        assert again.status == "rejected"
        assert "taken_back_before" in str(again)


_FAILED_BEFORE = {"name": "lost", "type": "file", "interval_s": 0.5, "settings": {"path": "/nowhere", "reading": "x"}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (takes_a_handler_away, "handler set_interval worked before and does not now"),
        (takes_a_program_away, "handler append worked before and does not now"),
        (takes_a_sensor_away, "sensor witness worked before and does not now"),
    ],
)
def test_a_release_that_takes_a_handler_or_a_sensor_away_goes_back_and_names_it(
    world,  # noqa: F811
    bench,  # noqa: F811
    tmp_path,
    change,
    says,
):
    release = world.maker.release("1.1.0", name=change.__name__, change=change)
    limits = {**_LIMITS, "deadline_s": 15}
    with Device(
        tmp_path / "device", world.maker, world.service, bench.device_id, limits=limits, sensors=[_FAILED_BEFORE]
    ) as device:
        bench.wait_for(bench.send(command="append", seconds=0), "succeeded", within_s=ANSWERS_WITHIN_S)
        record = bench.wait_for(update(world, bench, release), within_s=ANSWERS_WITHIN_S)
        assert record.status == "failed", (record, device.log)
        assert says in str(record), (record, device.log)
        assert "lost" not in str(record)
        bench.wait_for(bench.send(command="append", seconds=0), "succeeded", within_s=ANSWERS_WITHIN_S)


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """The device's folder; what it writes is on a file system of its own."""
    mount, umount = require_program("mount"), require_program("umount")
    folder = tmp_path / "device"
    disk = folder / "root/var"
    disk.mkdir(parents=True)
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=40m", "tmpfs", disk], capture_output=True, check=False)
    if done.returncode:
        reason = f"no file system can be mounted here: {done.stderr.decode().strip()}"
        do_without(reason, "run the build as root")
    try:
        yield folder
    finally:
        subprocess.run([umount, "--lazy", disk], check=True)


def test_a_release_that_fills_the_disk_goes_back_without_any_room(world, bench, small_disk):  # noqa: F811
    release = world.maker.release("1.1.0", name="full", change=fills_the_disk)
    with Device(
        small_disk, world.maker, world.service, bench.device_id, limits={**_LIMITS, "deadline_s": 25}
    ) as device:
        record = bench.wait_for(update(world, bench, release), within_s=ANSWERS_WITHIN_S)
        assert record.status == "failed", (record, device.log)
        # What cannot be written any more was written before the trial began.
        assert "worked before and does not now: " in str(record) or "the disk is full" in str(record), record
        bench.wait_for(bench.send(command="ping"), "succeeded", within_s=ANSWERS_WITHIN_S)
        assert not (device.root / "var/lib/device-agent-releases/current").exists()
