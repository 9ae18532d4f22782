"""In which condition a device is at one instant, and what faults change of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class WallClock:
    """A device's own wall clock: right, off, or running at a rate of its own.

    Attributes:
        offset_s: how much it is ahead at ``set_s``.
        drift: how much it gains in each second.
        set_s: when it was set, seconds since the epoch.
    """

    offset_s: float = 0.0
    drift: float = 0.0
    set_s: float = 0.0

    def at(self, time_s: float) -> float:
        """The clock's reading at the true time ``time_s``; both in seconds since the epoch."""
        return time_s + self.offset_s + self.drift * (time_s - self.set_s)


RIGHT: Final = WallClock()


@dataclass(frozen=True, slots=True)
class Condition:
    """What a device is like until before ``until_s`` (seconds since the epoch).

    Attributes:
        powered: whether it is on.
        clock: its own wall clock.
    """

    until_s: float = math.inf
    powered: bool = True
    clock: WallClock = RIGHT


ALWAYS_ON: Final = Condition()
"""A device that nothing ever happens to."""


def shift_clock(condition: Condition, offset_s: float, *, drift: float = 0.0, since_s: float = 0.0) -> Condition:
    """The same with a clock that is ``offset_s`` further ahead at ``since_s`` and gains ``drift`` each second then."""
    clock = condition.clock
    shown_s = clock.offset_s + clock.drift * (since_s - clock.set_s)
    shifted = replace(clock, offset_s=shown_s + offset_s, drift=clock.drift + drift, set_s=since_s)
    return replace(condition, clock=shifted)


def cut_power(condition: Condition, time_s: float, off_s: float, on_s: float) -> Condition:
    """The condition at a time of a device that has no power from ``off_s`` until before ``on_s``."""
    if time_s < off_s:
        return replace(condition, until_s=min(condition.until_s, off_s))
    if time_s < on_s:
        return replace(condition, until_s=min(condition.until_s, on_s), powered=False)
    return condition
