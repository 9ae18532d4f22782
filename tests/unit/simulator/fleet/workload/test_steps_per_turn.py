"""Phases, barriers, faults and the drain cost a turn of the worker's loop the same for a hundred and for ten thousand.

What each device has to do at one moment (all lose their power) is spread: so much in one turn, the rest in the next.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest

from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.workload.fleet import FleetWorkload
from tests.unit.simulator.fleet.workload.test_open_arrivals import a_job
from tests.virtual_fleet.virtual_time import Time, VirtualLoop, virtual_time

HOLD = {"kind": "hold", "name": "first", "duration_s": 10, "until": "online >= 0%"}
POWER = {"kind": "storm", "name": "power", "duration_s": 10, "away_s": 2}
LINKS = {**POWER, "name": "links", "loss": "connection", "until": "online >= 0%"}
FAULTS = [
    {"kind": "reboot_loop", "at_s": 2, "duration_s": 3, "up_s": 0.001, "down_s": 100},
    {"kind": "blackout", "at_s": 4, "duration_s": 2},
    {"kind": "disconnect_storm", "at_s": 25, "duration_s": 4, "away_s": 1},
    {"kind": "reboot_loop", "at_s": 29, "duration_s": 100, "up_s": 0.001, "down_s": 1000},
]


class CountingDevices:
    """Stands in for the devices: what it is called with, and nothing else."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.off: set[int] = set()
        self.down: Counter[int] = Counter()

    def switch_on(self, device: int) -> None:
        self.done["on"] += 1
        self.off.discard(device)

    def switch_off(self, device: int) -> None:
        self.done["off"] += 1
        self.off.add(device)

    def lose(self, device: int) -> None:
        self.done["lose"] += 1
        self.down[device] += 1

    def restore(self, device: int) -> None:
        self.done["restore"] += 1
        self.down[device] -= 1

    def apply_link_faults(self, faults: object) -> None: ...

    def has_link_fault(self, device: int) -> bool:
        return False

    def sample(self, *, on: bool) -> None: ...

    def unsettled(self) -> list[int]:
        return []

    def has_settled(self) -> bool:
        return True

    def await_requests(self, before_s: float) -> None: ...

    def figures(self) -> dict[str, float]:
        return {}

    async def close(self) -> int:
        return 0


class Steps:
    """Counts the functions that each turn of the loop calls, Python's own ones too."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0

    def _count(self, _frame: object, event: str, _argument: object) -> None:
        self._now += event in {"call", "c_call"}

    @contextmanager
    def counted(self) -> Iterator[None]:
        run = asyncio.events.Handle._run

        def counted(handle: asyncio.Handle) -> None:
            self._now = 0
            sys.setprofile(self._count)
            try:
                run(handle)
            finally:
                sys.setprofile(None)
            self.most = max(self.most, self._now)

        with patch.object(asyncio.events.Handle, "_run", counted):
            yield


def played(folder, count: int) -> tuple[int, CountingDevices]:
    """The most steps of one turn from after the begin until the drain is over."""
    job = a_job(
        folder, "http://127.0.0.1:1", kind="devices", phases=[HOLD, POWER, LINKS], faults=FAULTS,
        fleet={"devices": count},
    )  # fmt: skip
    names = tuple(f"d{number}" for number in range(count))
    job = replace(job, devices=range(count), device_ids=names, names=names, model_numbers=(0,) * count)
    steps, devices, clock = Steps(), CountingDevices(), Time()

    async def run(play: FleetWorkload) -> None:
        for phase, at_s in ((1, 15.0), (2, 25.0)):
            await asyncio.sleep(began_s + at_s - clock.now_s)
            play.enter_phase(phase, began_s + at_s)
        await asyncio.sleep(began_s + 36.0 - clock.now_s)
        assert devices.off == set(range(count)), "the last fault has everyone's power"
        await play.drain(began_s + 36.0, clock.now_s + 5.0)
        assert not devices.off
        assert not +devices.down

    async def make() -> FleetWorkload:
        play = FleetWorkload(job, Recorder())
        play.begin(began_s)
        play.enter_phase(0, began_s)
        return play

    with virtual_time(clock), patch("simulator.fleet.workload.fleet.make_devices", lambda *_parts: devices):
        loop = VirtualLoop(clock)
        asyncio.set_event_loop(loop)
        began_s = clock.now_s
        try:
            play = loop.run_until_complete(make())
            with steps.counted():
                loop.run_until_complete(run(play))
            loop.run_until_complete(play.close())
        finally:
            loop.close()
            asyncio.set_event_loop(None)
    return steps.most, devices


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return played(tmp_path_factory.mktemp("few"), 100)


def test_no_turn_of_a_run_takes_more_steps_with_ten_thousand_devices_than_with_a_hundred(few, tmp_path):
    most, devices = played(tmp_path, 10_000)
    assert most <= 1.1 * few[0], "64 devices in a turn, in both"
    assert {name: count / 100 for name, count in devices.done.items()} == pytest.approx(dict(few[1].done), rel=0.05)


def test_everyone_is_switched_as_often_as_phases_and_faults_say(few):
    done = few[1].done
    assert (done["lose"], done["restore"]) == (300, 300)  # a blackout, a storm of links, a storm of disconnects
    assert done["off"] >= 300
