"""History: every reading that a device would have made between two instants, in virtual time, for the backfill."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from agent.core.schedule import Schedule
from simulator.fleet.models.fault_hooks import Values
from simulator.fleet.signals.base import Individual, SignalSet


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
    signals: SignalSet, device: Individual, schedule: Schedule, *, from_s: float, to_s: float
) -> Iterator[PastReading]:
    """Live through a device's past.

    Args:
        signals: what it reads.
        device: which.
        schedule: when it reads, seconds since the epoch.
        from_s: the first instant, seconds since the epoch.
        to_s: before this one.

    Yields:
        The readings in the order of time.
    """
    sequence = 0
    number = math.ceil((from_s - schedule.phase_s) / schedule.period_s)
    while (time_s := schedule.phase_s + number * schedule.period_s) < to_s:
        number += 1
        if time_s < from_s:
            continue
        # The wire has milliseconds: what is read there must be what is sent there.
        time_s = round(time_s * 1000) / 1000
        if values := signals.read(device, time_s):
            sequence += 1
            yield PastReading(sequence, time_s, values)
