"""Faults of a run: each begins once its time is certain; power and links are taken and given back when it says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from simulator.fleet.engine.wheel import FIRES_PER_TURN, Clock, Wheel
from simulator.fleet.faults import ActiveFaults, Fault
from simulator.fleet.record import Span
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals import DeviceRandom
from simulator.fleet.workload.agenda import CallHeap
from simulator.fleet.workload.devices import Devices


class FaultSchedule:
    """The faults of a scenario, and the switch of its devices: one has power while the plan and all faults leave it.

    Args:
        scenario: with the faults.
        active: told of each fault as soon as its time is certain.
        devices: whose power and links faults take.
        wheel, clock: of the worker.
        range_of: the worker's devices.
    """

    def __init__(
        self,
        scenario: Scenario,
        active: ActiveFaults,
        devices: Devices,
        wheel: Wheel,
        clock: Clock,
        range_of: range,
    ) -> None:
        self._scenario = scenario
        self._active = active
        self._devices = devices
        self._wheel = wheel
        self._clock = clock
        self._range = range_of
        self._calls = CallHeap(wheel)
        self._begun: dict[int, Fault] = {}  # by place in the scenario
        self._on: set[int] = set()
        self._without: dict[str, Counter[int]] = {"power": Counter(), "link": Counter()}

    def begin(self, moved: Callable[[float], float | None]) -> None:
        """Begin the faults whose time has become certain; those behind a barrier wait until it opens.

        Args:
            moved: when that is in this run which the scenario has at a time, both since the run's begin; None while
                that may change.
        """
        new: list[Fault] = []
        for number, fault in enumerate(self._scenario.faults):
            begin_s = None if number in self._begun else moved(fault.at_s)
            if begin_s is not None:
                self._begun[number] = fault.placed(number, begin_s)
                new.append(self._begun[number])
        self._active.set(self._played())
        if any(fault in self._active.links for fault in new):
            self._devices.apply_link_faults(self._active)
        for begun in new:
            if begun.takes:
                now_s = self._clock.time() - self._active.began_s
                self._wheel.for_each(self._range, partial(self._next, begun, now_s))

    def truths(self) -> tuple[Span, ...]:
        """What each fault did to which devices of the whole fleet; devices are named by their number."""
        seed, devices = self._scenario.seed, range(self._scenario.fleet.devices)
        return tuple(fault.truth(DeviceRandom.at(seed, index) for index in devices) for fault in self._played())

    async def end(self) -> frozenset[int]:
        """End what faults do to power and links; may be called again.

        Returns:
            The devices that have no power, whatever the plan says: they have to be switched on.
        """
        self._calls.clear()
        dead, cut = (list(self._without[what]) for what in ("power", "link"))
        self._without = {"power": Counter(), "link": Counter()}
        for number, device in enumerate(cut, start=1):
            self._devices.restore(device)
            if number % FIRES_PER_TURN == 0:
                await asyncio.sleep(0)
        self._devices.apply_link_faults(None)
        return frozenset(dead)

    def switch_on(self, device: int) -> None:
        """Give it power by the plan."""
        self._on.add(device)
        if device not in self._without["power"]:
            self._devices.switch_on(device)

    def switch_off(self, device: int) -> None:
        """Take its power in this instant."""
        self._on.discard(device)
        self._devices.switch_off(device)

    def _played(self) -> list[Fault]:
        return [self._begun[number] for number in sorted(self._begun)]

    def _next(self, fault: Fault, after_s: float, device: int) -> None:
        """File the first time of this device without power or link that ends after a time."""
        found = fault.away(DeviceRandom.at(self._scenario.seed, device), after_s)
        if found is not None:
            begin_s, end_s = found
            self._calls.at(self._active.began_s + begin_s, partial(self._take, fault, end_s, device))

    def _take(self, fault: Fault, end_s: float, device: int) -> None:
        without = self._without[fault.takes]
        without[device] += 1
        if without[device] == 1:
            (self._devices.lose if fault.takes == "link" else self._devices.switch_off)(device)
        self._calls.at(self._active.began_s + end_s, partial(self._give_back, fault, end_s, device))

    def _give_back(self, fault: Fault, end_s: float, device: int) -> None:
        without = self._without[fault.takes]
        without[device] -= 1
        if not without[device]:
            del without[device]
            if fault.takes == "link":
                self._devices.restore(device)
            elif device in self._on:
                self._devices.switch_on(device)
        self._next(fault, end_s, device)
