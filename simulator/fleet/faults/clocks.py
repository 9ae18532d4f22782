"""What faults do to a device's wall clock."""

from __future__ import annotations

import dataclasses

from simulator.fleet.models.condition import Condition


def shift_clock(condition: Condition, offset_s: float, *, drift: float = 0.0, since_s: float = 0.0) -> Condition:
    """The same with a clock that is ``offset_s`` further ahead at ``since_s`` and gains ``drift`` each second then."""
    clock = condition.clock
    shown_s = clock.offset_s + clock.drift * (since_s - clock.set_s)
    shifted = dataclasses.replace(clock, offset_s=shown_s + offset_s, drift=clock.drift + drift, set_s=since_s)
    return dataclasses.replace(condition, clock=shifted)
