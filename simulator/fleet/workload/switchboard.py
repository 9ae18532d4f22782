"""The plan's events at their times, and the power and links of a worker's devices, which plan and faults switch."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Literal

from simulator.fleet.device.model import Fleet
from simulator.fleet.engine.timers import NEVER, Timer
from simulator.fleet.faults import ActiveFaults, Fault
from simulator.fleet.plan import Event
from simulator.fleet.record import Span
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals import DeviceRandom
from simulator.fleet.workload.devices import Devices

Thing = Literal["power", "link"]


class Agenda(Timer):
    """Calls ``happen`` for each event at its time; one event each time the timer fires, so that none holds up the loop.

    Args:
        fleet: with the timers, and the run's begin, from which the times of events count.
        happen: called with each event.

    Attributes:
        events: still to come, in the order of time.
    """

    __slots__ = ("_fleet", "_happen", "events")

    def __init__(self, fleet: Fleet, happen: Callable[[Event], None]) -> None:
        super().__init__()
        self._fleet = fleet
        self._happen = happen
        self.events: deque[Event] = deque()

    def add(self, events: Iterable[Event]) -> None:
        """Append events; none of them may be due before those that are there already."""
        self.events.extend(events)
        self._wait()

    def keep(self, kinds: Container[int], before_s: float) -> None:
        """Drop all events but those of these kinds that are due before ``before_s``, seconds since the run's begin."""
        self.events = deque(event for event in self.events if event.kind in kinds and event.time_s < before_s)
        self._wait()

    def fire(self) -> None:
        event = self.events.popleft()
        self._wait()
        self._happen(event)

    def _wait(self) -> None:
        due_s = self._fleet.began_s + self.events[0].time_s if self.events else NEVER
        if due_s != self.due_s:
            self._fleet.timers.at(due_s, self)


class Switchboard:
    """Counts for each device the causes that keep it without power or link, and starts the scenario's faults.

    At first every device is off; the plan is the one cause.

    Args:
        scenario: with the faults.
        active: gets each fault as soon as its time is certain.
        devices: whose power and links are switched.
        fleet: what they have in common.
        range_of: the worker's devices.
    """

    def __init__(
        self, scenario: Scenario, active: ActiveFaults, devices: Devices, fleet: Fleet, range_of: range
    ) -> None:
        self._scenario = scenario
        self._active = active
        self._devices = devices
        self._fleet = fleet
        self._range = range_of
        self._is_over = False  # nothing is switched any more
        self._begun: dict[int, Fault] = {}  # by position in the scenario
        self._without: dict[Thing, Counter[int]] = {"power": Counter(range_of), "link": Counter()}
        self._never_on = set(range_of)

    def take(self, thing: Thing, device: int) -> None:
        """Add a cause to be without power or link; the first one takes it away."""
        if self._is_over:
            return
        without = self._without[thing]
        without[device] += 1
        if without[device] == 1:
            (self._devices.switch_off if thing == "power" else self._devices.links.lose)(device)

    def give_back(self, thing: Thing, device: int) -> None:
        """Remove a cause; with the last one the device gets its power or link back."""
        if self._is_over:
            return
        without = self._without[thing]
        without[device] -= 1
        if not without[device]:
            del without[device]
            if thing == "power":
                self._never_on.discard(device)
            (self._devices.switch_on if thing == "power" else self._devices.links.restore)(device)

    def begin(self, moved: Callable[[float], float | None]) -> None:
        """Schedule the faults whose time is certain; those behind a barrier wait until it opens.

        Args:
            moved: maps a time of the scenario to its time in this run, both since the run's begin; None while a barrier
                may still move it.
        """
        new = dict[int, Fault]()
        for number, fault in enumerate(self._scenario.faults):
            if number not in self._begun and (begin_s := moved(fault.at_s)) is not None:
                new[number] = fault.placed(number, begin_s)
        self._begun |= new
        self._active.set(self._played())
        if any(fault in self._active.links for fault in new.values()):
            self._devices.links.faults = self._active
        now_s = self._fleet.monotonic() - self._active.began_s
        for begun in new.values():
            if begun.takes:
                self._fleet.timers.for_each(self._range, partial(self._strike, begun, begun.takes, now_s))

    def truths(self) -> tuple[Span, ...]:
        """What each fault did, and to which devices of the whole fleet."""
        seed, fleet = self._scenario.seed, self._scenario.fleet
        names = [fleet.identifier(index) for index in range(fleet.devices)]
        return tuple(fault.truth(seed, names) for fault in self._played())

    def stop(self) -> None:
        """Let faults and plan switch nothing any more."""
        self._is_over = True

    def end(self) -> None:
        """Give every device its power and link back, so that it can send what it holds; some in each turn of the loop.

        One that was never on holds nothing, and stays off.
        """
        self.stop()
        self._devices.links.faults = None
        for_each = self._fleet.timers.for_each
        for_each(sorted(self._without["link"].keys() - self._never_on), self._devices.links.restore)
        for_each(sorted(self._without["power"].keys() - self._never_on), self._devices.switch_on)

    def _played(self) -> list[Fault]:
        return [self._begun[number] for number in sorted(self._begun)]

    def _strike(self, fault: Fault, thing: Thing, after_s: float, device: int) -> None:
        """Schedule the device's next outage that ends after ``after_s``, then itself again."""
        found = fault.away(DeviceRandom(self._scenario.seed, device), after_s)
        if found is not None and not self._is_over:
            (begin_s, end_s), began_s, at = found, self._active.began_s, self._fleet.timers.at
            at(began_s + begin_s, partial(self.take, thing, device))
            at(began_s + end_s, partial(self.give_back, thing, device))
            at(began_s + end_s, partial(self._strike, fault, thing, end_s, device))
