"""Faults of devices in a run: each begins once its time is certain, is applied to power and links, and is recorded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from simulator.fleet.device.environment import Environment
from simulator.fleet.engine.wheel import FIRES_PER_TURN, Clock, Wheel
from simulator.fleet.faults.base import DeviceFault
from simulator.fleet.faults.link import LinkFault
from simulator.fleet.faults.registry import KINDS, DeviceFaultSettings, build_faults
from simulator.fleet.models.condition import ALWAYS_ON
from simulator.fleet.models.fault_hooks import ActiveFaults, Hook
from simulator.fleet.record import Span
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import Individual
from simulator.fleet.workload.agenda import CallHeap
from simulator.fleet.workload.devices import Devices
from simulator.fleet.workload.link_state import LinkFaults


def read_device_faults(scenario: Scenario) -> tuple[DeviceFaultSettings, ...]:
    """The faults of a scenario that devices or their links have, in its order."""
    return tuple(fault for fault in scenario.faults if fault.kind in KINDS)


def device_faults(
    settings: Sequence[DeviceFaultSettings], origin_s: float, moved: Callable[[float], float | None]
) -> dict[int, DeviceFault[Any]]:
    """The faults of a run whose time is certain, by their place in the scenario.

    Args:
        settings: of the scenario.
        origin_s: the run's begin, seconds since the epoch.
        moved: when something begins in this run that the scenario has at a time, both since the run's begin: waits at
            barriers move what comes after them. None while that may change.
    """
    begins_s = [moved(each.at_s) for each in settings]
    # All of them are made: a fault's place in the list decides which devices it chooses.
    made = build_faults(
        [
            each if begin_s is None else each.model_copy(update={"at_s": begin_s})
            for each, begin_s in zip(settings, begins_s, strict=True)
        ],
        origin_s=origin_s,
    )
    return {number: fault for number, fault in enumerate(made) if begins_s[number] is not None}


def truths(faults: Iterable[DeviceFault[Any]], seed: int, devices: int) -> tuple[Span, ...]:
    """What was done to which devices, for the record; devices are named by their number."""
    return tuple(fault.truth(Individual.at(seed, index) for index in range(devices)) for fault in faults)


class FaultContext:
    """What faults of a worker's devices work on.

    Args:
        devices: whose power and links they are.
        environment: the true time, and where faults that devices ask for are put.
        wheel, clock: of the worker.
        seed: of the run.
        range_of: the worker's devices.
    """

    def __init__(
        self, devices: Devices, environment: Environment, wheel: Wheel, clock: Clock, *, seed: int, range_of: range
    ) -> None:
        self.devices = devices
        self.environment = environment
        self.wheel = wheel
        self.seed = seed
        self.range_of = range_of
        self._clock = clock
        self._calls = CallHeap(wheel)
        self._individuals: dict[int, Individual] = {}

    def individual(self, device: int) -> Individual:
        """A device as faults see it."""
        found = self._individuals.get(device)
        if found is None:
            found = self._individuals[device] = Individual.at(self.seed, device)
        return found

    def true_now_s(self) -> float:
        """Seconds since the epoch."""
        return self.environment.true_s(self._clock.time())

    def at(self, true_s: float, call: Callable[[], object]) -> None:
        """Call it at a time, seconds since the epoch, unless faults end before."""
        self._calls.at(self.environment.monotonic_s(true_s), call)

    def end(self) -> None:
        """Call nothing any more that waits for its time."""
        self._calls.clear()


class FaultSchedule:
    """The faults of a run: begins each one once, as soon as its time is certain.

    Args:
        settings: of the scenario.
        context: what they work on.
        origin_s: the run's begin, seconds since the epoch.

    Attributes:
        power: switches devices, as far as faults let it.
    """

    def __init__(
        self,
        settings: Sequence[DeviceFaultSettings],
        context: FaultContext,
        origin_s: float,
    ) -> None:
        self._settings = settings
        self._context = context
        self._origin_s = origin_s
        self._begun: dict[int, DeviceFault[Any]] = {}  # by place in the scenario
        self.power = PowerFaults(context)
        self._network = NetworkFaults(context)

    def begin(self, moved: Callable[[float], float | None]) -> None:
        """Begin the faults whose time has become certain; those behind a barrier wait until it opens.

        Args:
            moved: see :func:`device_faults`.
        """
        certain = device_faults(self._settings, self._origin_s, moved)
        new = [fault for number, fault in certain.items() if number not in self._begun]
        self._begun = certain | self._begun
        self._context.environment.faults = ActiveFaults(self._played())
        self.power.begin(new)
        self._network.begin(new)

    async def end(self) -> frozenset[int]:
        """End what faults do to power and links; may be called again.

        Returns:
            The devices that have no power, whatever the plan says: they have to be switched on.
        """
        self._context.end()
        dead = self.power.end()
        await self._network.end()
        return dead

    def truths(self, devices: int) -> tuple[Span, ...]:
        """What each fault did, for the record: :func:`truths`."""
        return truths(self._played(), self._context.seed, devices)

    def _played(self) -> list[DeviceFault[Any]]:
        return [self._begun[number] for number in sorted(self._begun)]


class PowerFaults:
    """Switches devices (:class:`~simulator.fleet.workload.devices.Power`), as far as faults leave them their power.

    A device has power while it is switched on and no fault keeps it dead.

    Args:
        context: the devices.
    """

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._on: set[int] = set()
        self._dead: set[int] = set()
        self._looks: Counter[int] = Counter()  # of each device: an earlier look that still waits is out of date
        self._is_over = False

    def begin(self, faults: Sequence[DeviceFault[Any]]) -> None:
        """Apply these faults from now on, beside those before; each is given once. Others than of power do nothing."""
        powerful = [fault for fault in faults if Hook.CONDITION in fault.hooks]
        if powerful:
            self._context.wheel.for_each(self._context.range_of, partial(self._begin, powerful))

    def end(self) -> frozenset[int]:
        """No fault takes power any more; which devices are dead, and have to be switched on."""
        dead = frozenset(self._dead)
        self._is_over = True
        self._dead.clear()
        return dead

    def switch_on(self, device: int) -> None:
        """Give it power; nothing happens when it has it. See :class:`~simulator.fleet.workload.devices.Power`."""
        self._on.add(device)
        if device not in self._dead:
            self._context.devices.switch_on(device)

    def switch_off(self, device: int) -> None:
        """Take its power in this instant. See :class:`~simulator.fleet.workload.devices.Power`."""
        self._on.discard(device)
        self._context.devices.switch_off(device)

    def _begin(self, faults: Sequence[DeviceFault[Any]], device: int) -> None:
        individual = self._context.individual(device)
        if not self._is_over and any(fault.chooses(individual) for fault in faults):
            self._looks[device] += 1
            self._look(individual, self._looks[device], self._context.true_now_s())

    def _look(self, individual: Individual, number: int, at_s: float) -> None:
        """Apply the device's condition at a time to its power, and look again when that condition ends."""
        device, context = individual.index, self._context
        if number != self._looks[device]:
            return
        # A timer may fire a little early or late: the look is never before the time that it waited for.
        true_s = max(at_s, context.true_now_s())
        condition = context.environment.faults.condition(individual, true_s, ALWAYS_ON)
        if not condition.powered:
            if device not in self._dead:
                self._dead.add(device)
                context.devices.switch_off(device)
        elif device in self._dead:
            self._dead.discard(device)
            if device in self._on:
                context.devices.switch_on(device)
        if condition.until_s != float("inf"):
            context.at(condition.until_s, partial(self._look, individual, number, condition.until_s))


class NetworkFaults:
    """Applies faults of the network: links that go and come back, requests that get through badly.

    Args:
        context: the devices.
    """

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._is_over = False
        self._away: Counter[int] = Counter()  # how many faults keep a device away
        self._links: list[LinkFault[Any]] = []

    def begin(self, faults: Sequence[DeviceFault[Any]]) -> None:
        """Apply these faults from now on, beside those before; each is given once. Others than links' do nothing."""
        links = [fault for fault in faults if isinstance(fault, LinkFault)]
        if not links:
            return
        self._links += links
        self._apply(self._links)
        for fault in links:
            if type(fault).away is not LinkFault.away:
                self._context.wheel.for_each(self._context.range_of, partial(self._plan_away, fault))

    async def end(self) -> None:
        """Restore every link; may be called again."""
        self._is_over = True
        away = [device for device, faults in self._away.items() if faults]
        self._away.clear()
        for number, device in enumerate(away, start=1):
            self._context.devices.restore(device)
            if number % FIRES_PER_TURN == 0:
                await asyncio.sleep(0)
        if self._links:
            self._apply(())

    def _apply(self, links: Sequence[LinkFault[Any]]) -> None:
        context = self._context
        context.devices.apply_link_faults(LinkFaults(links, context.individual, context.environment.true_s))

    def _plan_away(self, fault: LinkFault[Any], device: int) -> None:
        if self._is_over:
            return
        now_s = self._context.true_now_s()
        for begin_s, end_s in fault.away(self._context.individual(device)):
            if end_s > now_s:
                self._context.at(begin_s, partial(self._lose, device))
                self._context.at(end_s, partial(self._restore, device))

    def _lose(self, device: int) -> None:
        self._away[device] += 1
        if self._away[device] == 1:
            self._context.devices.lose(device)

    def _restore(self, device: int) -> None:
        self._away[device] -= 1
        if self._away[device] == 0:
            self._context.devices.restore(device)
