"""History: every reading that a device would have made between two instants, in virtual time.

Used by the backfill, and by tests that want the data of a fleet without running one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from agent.core.schedule import Schedule
from simulator.fleet.models.fault_hooks import NO_FAULTS, ActiveFaults, Values
from simulator.fleet.models.model import Model
from simulator.fleet.signals.base import Individual


@dataclass(frozen=True, slots=True)
class PastReading:
    """A reading of the time before the run.

    Attributes:
        sequence: 1 for the first of this history, without gaps.
        time_s: when it was made, seconds since the epoch; whole milliseconds.
        values: at least one.
    """

    sequence: int
    time_s: float
    values: Values


def history_of(
    model: Model,
    device: Individual,
    schedule: Schedule,
    *,
    from_s: float,
    to_s: float,
    faults: ActiveFaults = NO_FAULTS,
) -> Iterator[PastReading]:
    """Live through a device's past.

    Args:
        model: what the device is; its ``origin_s`` is where ``schedule`` counts from.
        device: which.
        schedule: when it reads; a state with a pace of its own keeps the place in the period.
        from_s: the first instant, seconds since the epoch.
        to_s: before this one.
        faults: that change its condition or its values.

    Yields:
        The readings in the order of time; none while it is off.
    """
    sequence = 0
    at_s = from_s
    while at_s < to_s:
        condition = faults.condition(device, at_s, model.condition_at(device, at_s))
        end_s = min(condition.until_s, to_s)
        if condition.powered:
            every_s = model.interval_s(condition)
            phase_s = schedule.phase_s / schedule.period_s * every_s
            for time_s in _instants(every_s, (model.origin_s + phase_s) % every_s, at_s, end_s):

                def read(then_s: float) -> Values:
                    return model.read(device, then_s, condition)  # noqa: B023 - called within this turn only

                values = faults.values(device, time_s, read(time_s), read)
                if values:
                    sequence += 1
                    yield PastReading(sequence, time_s, values)
        at_s = end_s


def _instants(every_s: float, phase_s: float, from_s: float, to_s: float) -> Iterator[float]:
    number = math.ceil((from_s - phase_s) / every_s)
    while (time_s := phase_s + number * every_s) < to_s:
        if time_s >= from_s:
            # The wire has milliseconds: what is read there must be what is sent there.
            yield round(time_s * 1000) / 1000
        number += 1
