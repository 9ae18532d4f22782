"""An update, cut at every step that writes: the device answers again, nothing is lost, nothing is done twice."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.canary import SECRET_KEY
from tests.e2e.agent_bench import API_KEY, AgentBench, wait_until
from tests.fault.update_device import AGENT, Cut, Device, serving
from tests.releases import Maker

CUTS = int(os.environ.get("UPDATE_CUTS", "4"))
ANSWERS_WITHIN_S = 120.0
_FINAL = {"succeeded", "failed", "rejected", "indeterminate"}

pytestmark = [pytest.mark.timeout(300 + 30 * CUTS), pytest.mark.xdist_group("update_cuts")]


@dataclass(frozen=True, slots=True)
class World:
    """What all devices share.

    Attributes:
        maker: of the releases.
        service: its address.
        files: the address of the releases.
        release: version 1.1.0.
    """

    maker: Maker
    service: str
    files: str
    release: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("releases")
    maker = Maker(folder)
    release = maker.release("1.1.0")
    config = ServiceConfig(
        data_dir=tmp_path_factory.mktemp("service"), api_key=API_KEY, secret_key=Secret(SECRET_KEY), log_level="warning"
    )
    with RunningService(config) as service, serving(folder) as files:
        yield World(maker, service.base_url, files, release)


@pytest.fixture
def bench(world, tmp_path) -> Iterator[AgentBench]:
    made = AgentBench(tmp_path, world.service)
    yield made
    made.close()


def update(world: World, bench: AgentBench, release: Path, **more: object) -> str:
    sha256 = hashlib.sha256(release.read_bytes()).hexdigest()
    return bench.send(command="update_agent", url=f"{world.files}/{release.name}", sha256=sha256, **more)


def live_through(world: World, bench: AgentBench, device: Device) -> str:
    """An update with other commands around it; the status of its command."""
    sent = [bench.send(command="append", seconds=0)]
    bench.wait_for(sent[0], within_s=ANSWERS_WITHIN_S)
    order = update(world, bench, world.release)
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


@pytest.fixture(scope="module")
def steps(world, tmp_path_factory) -> dict[tuple[str, int], int]:
    """How many steps that write each run of each program has in an update that nothing cuts."""
    folder = tmp_path_factory.mktemp("uncut")
    bench = AgentBench(folder, world.service)
    try:
        with Device(folder, world.maker, world.service, bench.device_id) as device:
            assert live_through(world, bench, device) == "succeeded", device.log
            assert device.state["phase"] == "kept"
            lines = device.steps.read_text().splitlines()
    finally:
        bench.close()
    found: dict[tuple[str, int], int] = defaultdict(int)
    for line in lines:
        name, step, *_ = line.split()
        kind, _, run = name.partition(":")
        found[kind, int(run)] = max(found[kind, int(run)], int(step))
    return dict(found)


def chosen(steps: dict[tuple[str, int], int], count: int) -> list[Cut]:
    """So many cuts, spread over all steps; beyond all of them each comes a second time as a power cut."""
    every = [
        Cut(kind, step, run, power)
        for (kind, run), last in sorted(steps.items())
        for step in range(1, last + 1)
        for power in (False, True)
    ]
    if count >= len(every):
        return every
    return random.Random(count).sample(every, count)


def test_whatever_moment_of_an_update_is_cut_the_device_answers_again(world, steps, tmp_path_factory):
    done: Counter[str] = Counter()
    for number, cut in enumerate(chosen(steps, CUTS)):
        folder = tmp_path_factory.mktemp(f"cut{number}-")
        bench = AgentBench(folder, world.service)
        try:
            with Device(folder, world.maker, world.service, bench.device_id, cut=cut) as device:
                status = live_through(world, bench, device)
                # Whatever was cut: version 1.1.0 is good, so it is there in the end, or its command says why not.
                runs = (device.root / "var/lib/device-agent-releases/current").exists()
                assert (status == "succeeded") == runs, (cut, status, device.state, device.log)
                done["cut" if device.was_cut else "not reached"] += 1
                done[f"{status}, {device.state['phase']}"] += 1
        except BaseException as error:
            error.add_note(f"{cut} in {folder}")
            raise
        finally:
            bench.close()
    print(f"\n{dict(done)} of {sum(steps.values())} steps: {steps}")  # noqa: T201 - the table of `make update-cuts`
    assert done["cut"] >= 0.8 * min(CUTS, 2 * sum(steps.values()))
    assert AGENT in {kind for kind, _ in steps}
