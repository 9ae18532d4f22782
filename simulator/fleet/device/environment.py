"""What changes a device's readings, clock and bodies beside its signals: its own clock, and faults under way.

Runs without either have no environment, and pay nothing for it. Times in and out are those of a device (monotonic);
models and faults go by the true time, seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.values import Moment
from simulator.fleet.device.http_codec import Request
from simulator.fleet.models.clock import Clock
from simulator.fleet.models.condition import ALWAYS_ON
from simulator.fleet.models.fault_hooks import ActiveFaults, Hook, Values
from simulator.fleet.signals.base import Individual, SignalSet


class Environment:
    """The clock, readings and bodies of a device, as its model and the faults under way make them.

    Args:
        began_s: the run's begin on the monotonic clock.
        origin_s: the same, seconds since the epoch.
        faults: under way, or to come; may be replaced.
        has_clocks: wall clocks of some devices are wrong by their model.
    """

    __slots__ = ("_ahead_s", "_clocks", "faults")

    def __init__(self, began_s: float, origin_s: float, faults: ActiveFaults, *, has_clocks: bool) -> None:
        self._ahead_s = origin_s - began_s
        self._clocks = has_clocks
        self.faults = faults

    def true_s(self, monotonic_s: float) -> float:
        """The true time, seconds since the epoch."""
        return monotonic_s + self._ahead_s

    def monotonic_s(self, true_s: float) -> float:
        """When that is on the monotonic clock."""
        return true_s - self._ahead_s

    @property
    def clocks_are_right(self) -> bool:
        """Whether every device shows the true time."""
        return not (self._clocks or self.faults.any(Hook.CONDITION))

    def moment(self, individual: Individual, clock: Clock | None, now: Moment) -> Moment:
        """This instant as the device sees it: by its own wall clock."""
        true_s = self.true_s(now.monotonic_s)
        condition = ALWAYS_ON if clock is None else replace(ALWAYS_ON, clock=clock.clock_at(individual, true_s))
        shown = self.faults.condition(individual, true_s, condition).clock
        return Moment(now.monotonic_s, shown.at(true_s), now.boot_id)

    def values(self, individual: Individual, signals: SignalSet, now: Moment) -> dict[str, float]:
        """What the device reads now."""
        true_s = self.true_s(now.monotonic_s)

        def read(then_s: float) -> Values:
            return signals.read(individual, then_s)

        return dict(self.faults.values(individual, true_s, read(true_s), read))

    def held_until_s(self, individual: Individual, now: Moment) -> float:
        """Nothing is handed over before; on the monotonic clock, in the past where nothing is held."""
        true_s = self.true_s(now.monotonic_s)
        return self.monotonic_s(self.faults.held_until(individual, true_s))

    def sent(self, individual: Individual, request: Request, now: Moment) -> Request:
        """What goes out instead of a request with readings."""
        if request.body is None or not self.faults.any(Hook.BODIES):
            return request
        first, *copies = self.faults.bodies(individual, self.true_s(now.monotonic_s), request.body)
        return request._replace(body=first.content, copies=tuple(copies))
