"""Faults of the network in a run: links that go and come back, requests that get through badly, slow connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from simulator.fleet.device.circumstances import Circumstances
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.faults.base import DeviceFault
from simulator.fleet.faults.link import LinkFault
from simulator.fleet.faults.slow_loris import SlowLoris
from simulator.fleet.play.devices import Devices
from simulator.fleet.play.link_state import LinkFaults
from simulator.fleet.play.loris import SlowConnections, SlowTarget
from simulator.fleet.signals.base import Individual
from simulator.watched import start_task


class NetworkFaults:
    """What the network does to the devices of a worker.

    Args:
        devices: whose links they are.
        circumstances: the true time.
        wheel: of the worker.
        seed: of the run.
        range_of: the worker's devices.
        slow: where slow connections go.
        part: this worker's part of them, 0 to 1.
    """

    def __init__(
        self,
        devices: Devices,
        circumstances: Circumstances,
        wheel: Wheel,
        *,
        seed: int,
        range_of: range,
        slow: SlowTarget,
        part: float,
    ) -> None:
        self._devices = devices
        self._around = circumstances
        self._wheel = wheel
        self._seed = seed
        self._range = range_of
        self._target = slow
        self._part = part
        self._turn = 0
        self._away: Counter[int] = Counter()  # how many faults keep a device away
        self._links: list[LinkFault[Any]] = []
        self._individuals: dict[int, Individual] = {}
        self._slow: list[SlowConnections] = []
        self._ending: set[asyncio.Task[None]] = set()

    def begin(self, faults: Sequence[DeviceFault[Any]], now_s: float) -> None:
        """These are played, too, from now on; each is given once.

        Args:
            faults: of the scenario; those of the network are taken.
            now_s: on the worker's clock.
        """
        links = [fault for fault in faults if isinstance(fault, LinkFault)]
        if not links:
            return
        self._links += links
        self._devices.afflict(LinkFaults(self._links, self._individual, self._around.true_s))
        true_now_s = self._around.true_s(now_s)
        for fault in links:
            if isinstance(fault, SlowLoris):
                self._plan_slow(fault, true_now_s)
            for device in self._range:
                for begin_s, end_s in fault.away(self._individual(device)):
                    if end_s > true_now_s:
                        self._at(begin_s, partial(self._lose, device))
                        self._at(end_s, partial(self._restore, device))

    async def end(self) -> None:
        """Every link is up, and nothing slow is left."""
        self._turn += 1
        away = [device for device, faults in self._away.items() if faults]
        self._away.clear()
        for device in away:
            self._devices.restore(device)
        self._devices.afflict(LinkFaults((), self._individual, self._around.true_s))
        await asyncio.gather(*(slow.end() for slow in self._slow), *self._ending)
        self._slow.clear()

    def _individual(self, device: int) -> Individual:
        found = self._individuals.get(device)
        if found is None:
            found = self._individuals[device] = Individual.at(self._seed, device)
        return found

    def _plan_slow(self, fault: SlowLoris, true_now_s: float) -> None:
        if fault.end_s <= true_now_s:
            return
        count = max(1, round(fault.settings.connections * self._part))
        slow = SlowConnections(self._target, count, fault.settings.every_s)
        self._slow.append(slow)
        self._at(fault.begin_s, slow.begin)
        self._at(fault.end_s, partial(self._end_slow, slow))

    def _end_slow(self, slow: SlowConnections) -> None:
        task = start_task(slow.end(), "slow-end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _at(self, true_s: float, what: Any) -> None:
        turn = self._turn

        def call() -> None:
            if turn == self._turn:
                what()

        self._wheel.at(self._around.monotonic_s(true_s), call)

    def _lose(self, device: int) -> None:
        self._away[device] += 1
        if self._away[device] == 1:
            self._devices.lose(device)

    def _restore(self, device: int) -> None:
        self._away[device] -= 1
        if self._away[device] == 0:
            self._devices.restore(device)
