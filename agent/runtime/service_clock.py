"""The service's clock as the threads of the agent share it; :mod:`agent.core.timekeeping` does the thinking."""

from __future__ import annotations

import threading

from agent.core.timekeeping import ServiceTime
from agent.core.values import Moment
from agent.ports import Clock


class ServiceClock:
    """What time it is at the service. Thread-safe.

    Args:
        clock: the device's own clocks.
        trust_wall: the device's wall clock is known to be right.
    """

    def __init__(self, clock: Clock, *, trust_wall: bool = False) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._time = ServiceTime(trust_wall=trust_wall)

    def observe(self, server_time: float) -> None:
        """An answer with this ``Date`` arrived just now."""
        with self._lock:
            self._time = self._time.observe(server_time, self._clock.now())

    @property
    def estimate(self) -> ServiceTime:
        """What is known by now."""
        with self._lock:
            return self._time

    def now(self) -> float | None:
        """The service's clock now, epoch seconds; None when nobody can say."""
        return self.estimate.at(self._clock.now())

    def recorded_at(self, moment: Moment) -> float | None:
        """When something happened, for the wire; see :meth:`agent.core.timekeeping.ServiceTime.recorded_at`."""
        return self.estimate.recorded_at(moment)
