"""Faults of the network in a run: links that go and come back, requests that get through badly, slow connections."""

from __future__ import annotations

import asyncio
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
        self._away: set[int] = set()
        self._individuals: dict[int, Individual] = {}
        self._slow: dict[int, SlowConnections] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def begin(self, faults: Sequence[DeviceFault[Any]], now_s: float) -> None:
        """These are the faults from now on; those that are over do not come again.

        Args:
            faults: of the scenario, as far as they are of the network.
            now_s: on the worker's clock.
        """
        links = [fault for fault in faults if isinstance(fault, LinkFault)]
        self._turn += 1
        self._devices.afflict(LinkFaults(links, self._individual, self._around.true_s))
        true_now_s = self._around.true_s(now_s)
        for number, fault in enumerate(links):
            if isinstance(fault, SlowLoris):
                self._plan_slow(number, fault, true_now_s)
            for device in self._range:
                for begin_s, end_s in fault.away(self._individual(device)):
                    if end_s > true_now_s and device not in self._away:
                        self._at(begin_s, partial(self._lose, device))
                    if end_s > true_now_s:
                        self._at(end_s, partial(self._restore, device))

    async def end(self) -> None:
        """Every link is up, and nothing slow is left."""
        self._turn += 1
        for device in list(self._away):
            self._away.discard(device)
            self._devices.restore(device)
        self._devices.afflict(LinkFaults((), self._individual, self._around.true_s))
        await asyncio.gather(*(slow.end() for slow in self._slow.values()), *self._ending)
        self._slow.clear()

    def _individual(self, device: int) -> Individual:
        found = self._individuals.get(device)
        if found is None:
            found = self._individuals[device] = Individual.at(self._seed, device)
        return found

    def _plan_slow(self, number: int, fault: SlowLoris, true_now_s: float) -> None:
        if fault.end_s <= true_now_s:
            return
        slow = self._slow.get(number)
        if slow is None:
            count = max(1, round(fault.settings.connections * self._part))
            slow = self._slow[number] = SlowConnections(self._target, count, fault.settings.every_s)
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
        if device not in self._away:
            self._away.add(device)
            self._devices.lose(device)

    def _restore(self, device: int) -> None:
        if device in self._away:
            self._away.discard(device)
            self._devices.restore(device)
