"""Faults of devices in a run: read from the scenario, put around the devices, and told in the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from simulator.fleet.device.circumstances import Circumstances
from simulator.fleet.engine.wheel import Clock, Wheel
from simulator.fleet.faults.base import DeviceFault
from simulator.fleet.faults.kinds import KINDS, DeviceFaultSettings, build_faults
from simulator.fleet.models.condition import ALWAYS_ON
from simulator.fleet.models.interference import Hook, Interferences
from simulator.fleet.play.devices import Devices
from simulator.fleet.record import Span
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import Individual


def read_device_faults(scenario: Scenario) -> tuple[DeviceFaultSettings, ...]:
    """The faults of a scenario that concern devices, in its order; other kinds are other rooms' business."""
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
    # All of them are made, since each is told from the others by its place.
    made = build_faults(
        [
            each if begin_s is None else each.model_copy(update={"at_s": begin_s})
            for each, begin_s in zip(settings, begins_s, strict=True)
        ],
        origin_s=origin_s,
    )
    return {number: fault for number, fault in enumerate(made) if begins_s[number] is not None}


def truths(faults: Sequence[DeviceFault[Any]], seed: int, devices: int) -> tuple[Span, ...]:
    """What was done to whom, for the record; devices are named by their number."""
    return tuple(fault.truth(Individual.at(seed, index) for index in range(devices)) for fault in faults)


class Afflictions:
    """Devices whose power faults take and give back; everything else goes straight through.

    Args:
        devices: whose power it is.
        circumstances: with the faults.
        wheel, clock: of the worker.
        seed: of the run.
        range_of: the worker's devices.
    """

    def __init__(
        self,
        devices: Devices,
        circumstances: Circumstances,
        wheel: Wheel,
        clock: Clock,
        *,
        seed: int,
        range_of: range,
    ) -> None:
        self._devices = devices
        self._around = circumstances
        self._wheel = wheel
        self._clock = clock
        self._seed = seed
        self._range = range_of
        self._on: set[int] = set()
        self._dead: set[int] = set()
        self._faults: list[DeviceFault[Any]] = []
        self._turns: Counter[int] = Counter()  # of each device: what was looked for before is out of date
        self.lose = devices.lose
        self.restore = devices.restore
        self.afflict = devices.afflict
        self.is_afflicted = devices.is_afflicted
        self.arrive = devices.arrive
        self.sample = devices.sample
        self.unsettled = devices.unsettled
        self.has_settled = devices.has_settled
        self.await_requests = devices.await_requests
        self.had_contact = devices.had_contact
        self.gauges: Callable[[], Mapping[str, float]] = devices.gauges
        self.close = devices.close

    def begin(self, faults: Sequence[DeviceFault[Any]]) -> None:
        """These are played, too, from now on; each is given once."""
        self._faults += faults
        self._around.faults = Interferences(self._faults)
        powerful = [fault for fault in faults if Hook.CONDITION in fault.hooks]
        if not powerful:
            return
        for device in self._range:
            individual = Individual.at(self._seed, device)
            if any(fault.chooses(individual) for fault in powerful):
                self._turns[device] += 1
                self._look(individual, self._turns[device], self._around.true_s(self._clock.time()))

    def end(self) -> None:
        """No fault takes any device's power any more; those without it have to be switched on."""
        self._turns.clear()
        self._dead.clear()

    def switch_on(self, device: int) -> None:
        """See :class:`~simulator.fleet.play.devices.Devices`."""
        self._on.add(device)
        if device not in self._dead:
            self._devices.switch_on(device)

    def switch_off(self, device: int) -> None:
        """See :class:`~simulator.fleet.play.devices.Devices`."""
        self._on.discard(device)
        self._devices.switch_off(device)

    def _look(self, individual: Individual, turn: int, at_s: float) -> None:
        """What the faults do to a device's power at a time, and look again when that ends."""
        device = individual.index
        if turn != self._turns[device]:
            return
        # Timers may fire a little early or late: what was waited for has come, what came since has come, too.
        true_s = max(at_s, self._around.true_s(self._clock.time()))
        condition = self._around.faults.condition(individual, true_s, ALWAYS_ON)
        if not condition.powered:
            if device not in self._dead:
                self._dead.add(device)
                self._devices.switch_off(device)
        elif device in self._dead:
            self._dead.discard(device)
            if device in self._on:
                self._devices.switch_on(device)
        if condition.until_s != float("inf"):
            due_s = self._around.monotonic_s(condition.until_s)
            self._wheel.at(due_s, partial(self._look, individual, turn, condition.until_s))
