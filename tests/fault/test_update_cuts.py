"""An update, cut at every step that writes: the device answers again, nothing is lost, nothing is done twice.

A cut ends a process, or all of them with the power; then also what was not synced may be lost (``UPDATE_POWER_CUTS``).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.canary import SECRET_KEY
from tests.conftest import do_without, require_program
from tests.e2e.agent_bench import API_KEY, AgentBench, wait_until
from tests.fault.ext4_disk import Ext4Disk
from tests.fault.update_device import Cut, Device, serving
from tests.releases import Maker

CUTS = int(os.environ.get("UPDATE_CUTS", "2"))
POWER_CUTS = int(os.environ.get("UPDATE_POWER_CUTS", "0"))
PARTS = 1 if CUTS < 20 else 8
ANSWERS_WITHIN_S = 120.0
_FINAL = {"succeeded", "failed", "rejected", "indeterminate"}

pytestmark = [pytest.mark.timeout(300 + 30 * CUTS + 60 * POWER_CUTS), pytest.mark.long]


@dataclass(frozen=True, slots=True)
class World:
    """What all devices share.

    Attributes:
        maker: of the releases.
        service: its address.
        files: the address of the releases.
        releases: version 1.1.0 as it should be, and one of that version that dies at its import.
    """

    maker: Maker
    service: str
    files: str
    releases: dict[str, Path]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("releases")
    maker = Maker(folder)
    releases = {"good": maker.release("1.1.0"), "bad": maker.release("1.1.0", name="bad", change=_die)}
    config = ServiceConfig(
        data_dir=tmp_path_factory.mktemp("service"),
        api_key=API_KEY,
        secret_key=Secret(SECRET_KEY),
        log_level="warning",
        rate_limit=0,
    )
    with RunningService(config) as service, serving(folder) as files:
        yield World(maker, service.base_url, files, releases)


def _die(tree: Path) -> None:
    path = tree / "common/agent/__init__.py"
    path.write_text(f"{path.read_text()}raise RuntimeError\n")


@pytest.fixture
def bench(world, tmp_path) -> Iterator[AgentBench]:
    made = AgentBench(tmp_path, world.service)
    yield made
    made.close()


def update(world: World, bench: AgentBench, release: Path, **more: object) -> str:
    sha256 = hashlib.sha256(release.read_bytes()).hexdigest()
    return bench.send(command="update_agent", url=f"{world.files}/{release.name}", sha256=sha256, **more)


def live_through(world: World, bench: AgentBench, device: Device, release: str) -> str:
    """An update with other commands around it; the status of its command."""
    sent = [bench.send(command="append", seconds=0)]
    bench.wait_for(sent[0], within_s=ANSWERS_WITHIN_S)
    order = update(world, bench, world.releases[release])
    sent.append(bench.send(command="append", seconds=1))
    record = bench.wait_for(order, *_FINAL, within_s=ANSWERS_WITHIN_S)
    sent.append(bench.send(command="append", seconds=0))
    ping = bench.send(command="ping")
    bench.wait_for(ping, "succeeded", within_s=ANSWERS_WITHIN_S)
    for each in sent:
        bench.wait_for(each, *_FINAL, within_s=ANSWERS_WITHIN_S)
    _judge_effects(bench, device, sent)
    _judge_readings(bench, device)
    assert device.state["phase"] in {"kept", "rolled_back"}, (device.state, device.log)
    return str(record.status)


def _judge_effects(bench: AgentBench, device: Device, sent: list[str]) -> None:
    path = device.folder / "effects.jsonl"
    runs = Counter(json.loads(line)["command_id"] for line in path.read_text().splitlines())
    for each in sent:
        status = bench.commands()[each].status
        # Interrupted it is not known how it ended, and it never runs again.
        allowed = {1} if status == "succeeded" else {0, 1}
        assert runs[each] in allowed, (each, status, runs[each], device.log)


def _judge_readings(bench: AgentBench, device: Device) -> None:
    committed = set(device.committed)

    def stored() -> list[int]:
        readings = (each.sensor_data for each in bench.client.sensor_data(bench.device_id))
        return [int(values["witness_sequence"]) for values in readings if "witness_sequence" in values]

    wait_until(lambda: committed <= set(stored()), 60)
    found = stored()
    assert len(found) == len(set(found)), f"stored twice: {[n for n, count in Counter(found).items() if count > 1]}"


Steps = dict[tuple[str, str, int], int]
"""Release, program, run of it -> how many steps that write it has."""


@pytest.fixture(scope="module")
def steps(world, tmp_path_factory) -> Steps:
    """Of updates that nothing cuts."""
    found: Steps = defaultdict(int)
    for release, status, phase in (("good", "succeeded", "kept"), ("bad", "failed", "rolled_back")):
        folder = tmp_path_factory.mktemp("uncut")
        bench = AgentBench(folder, world.service)
        try:
            with Device(folder, world.maker, world.service, bench.device_id) as device:
                assert live_through(world, bench, device, release) == status, device.log
                assert device.state["phase"] == phase
                lines = device.steps.read_text().splitlines()
        finally:
            bench.close()
        for line in lines:
            name, step, *_ = line.split()
            kind, _, run = name.partition(":")
            found[release, kind, int(run)] = max(found[release, kind, int(run)], int(step))
    return dict(found)


def chosen(steps: Steps, count: int) -> list[tuple[str, Cut]]:
    """So many cuts, drawn from all steps; each is there as the end of one process and as that of the power."""
    every = [
        (release, Cut(kind, step, run, power))
        for (release, kind, run), last in sorted(steps.items())
        for step in range(1, last + 1)
        for power in (False, True)
    ]
    return random.Random(count).sample(every, min(count, len(every)))


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_moment_of_an_update_is_cut_the_device_answers_again(world, steps, tmp_path_factory, part):
    done: Counter[str] = Counter()
    cuts = chosen(steps, CUTS)[part::PARTS]
    for release, cut in cuts:
        folder = tmp_path_factory.mktemp(f"cut{part}-")
        done += live_through_cut(world, folder, release, cut)
        shutil.rmtree(folder)
    print(f"\n{dict(done)} of {sum(steps.values())} steps: {steps}")  # noqa: T201 - the table of `make update-cuts`
    # In another run of the same update some steps come in other runs of a program.
    assert done["cut"] >= 0.6 * len(cuts)
    assert {"agent", "helper", "serve", "watch", "start"} == {kind for _, kind, _ in steps}


def live_through_cut(world: World, folder: Path, release: str, cut: Cut, disk: Ext4Disk | None = None) -> Counter[str]:
    """An update of a device that is cut once; what came of it."""
    bench = AgentBench(folder, world.service)
    try:
        with Device(folder, world.maker, world.service, bench.device_id, cut=cut, disk=disk) as device:
            status = live_through(world, bench, device, release)
            # The result says what runs, and a bad release never stays.
            runs = (device.root / "var/lib/device-agent-releases/current").exists()
            assert (status == "succeeded") == runs, (cut, status, device.state, device.log)
            assert release == "good" or not runs
            return Counter(
                ["cut" if device.was_cut else "not reached", f"{release}: {status}, {device.state['phase']}"]
            )
    except BaseException as error:
        error.add_note(f"{release} {cut} in {folder}")
        raise
    finally:
        bench.close()


@pytest.mark.skipif(not POWER_CUTS, reason="make update-cuts plays it: each cut takes a quarter of a minute")
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_was_not_synced_when_the_power_went_the_device_answers_again(world, steps, tmp_path_factory, part):
    for program in ("mke2fs", "mount", "umount"):
        require_program(program)
    done: Counter[str] = Counter()
    cuts = [(release, cut) for release, cut in chosen(steps, 2 * POWER_CUTS) if cut.power][part::PARTS]
    for release, cut in cuts:
        folder = tmp_path_factory.mktemp(f"power{part}-")
        place = folder / "root/var"
        place.mkdir(parents=True)
        try:
            disk = Ext4Disk(folder / "disk.img", place)
        except OSError as error:
            do_without(f"no file system can be mounted here: {error}", "run the build as root")
        try:
            done += live_through_cut(world, folder, release, cut, disk)
        finally:
            disk.unmount()
        shutil.rmtree(folder)
    print(f"\n{dict(done)}, what was not synced is lost")  # noqa: T201 - the table of `make update-cuts`
    assert done["cut"] >= 0.6 * len(cuts)
