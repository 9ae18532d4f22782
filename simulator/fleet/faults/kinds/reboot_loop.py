"""Devices that come up, run for a moment, and go down again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.condition import Condition, PowerLoss
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual, period_at, salt_of


class RebootLoopSettings(LastingBasis):
    """Devices restart again and again."""

    kind: Literal["reboot_loop"]
    up_s: Seconds = key("how long they run", unit="s", default=15.0)
    down_s: Seconds = key("how long they are gone", unit="s", default=5.0)


@register_fault(RebootLoopSettings)
class RebootLoop(DeviceFault[RebootLoopSettings]):
    """Applies :class:`RebootLoopSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """Up and down by turns, each device at its own point of the turn."""
        condition = self.bounded(device, time_s, condition)
        if not self.chooses(device) or time_s < self.begin_s:
            return condition
        phase = device.fraction(salt_of("reboot_loop", self.salt.hex()))
        turns = UpDownCycle(self.begin_s, self.end_s, self.settings.up_s, self.settings.down_s, phase)
        return turns.condition(time_s, condition)


@dataclass(frozen=True, slots=True)
class UpDownCycle:
    """Up and down by turns.

    Attributes:
        begin_s, end_s: of the loop, seconds since the epoch.
        up_s, down_s: of one turn.
        phase: where in its turn the device is at ``begin_s``, a part of the turn.
    """

    begin_s: float
    end_s: float
    up_s: float
    down_s: float
    phase: float

    def condition(self, time_s: float, condition: Condition) -> Condition:
        """The condition in the loop, and after it, at a time that is not before it."""
        at_s = min(time_s, self.end_s)
        turn = period_at(at_s, self.up_s + self.down_s, self.phase, self.begin_s)
        up_from_s = turn.begin_s
        down_from_s = up_from_s + self.up_s
        # In its first turn the device may have been up since before the loop.
        booted_s = condition.booted_s if up_from_s < self.begin_s else max(condition.booted_s, up_from_s)
        if time_s >= self.end_s:
            if at_s >= down_from_s:  # the end caught it off: it comes up then
                booted_s = max(condition.booted_s, self.end_s)
            return dataclasses.replace(condition, since_s=max(condition.since_s, self.end_s), booted_s=booted_s)
        if time_s < down_from_s:
            return dataclasses.replace(
                condition,
                since_s=max(condition.since_s, up_from_s),
                until_s=min(condition.until_s, down_from_s),
                booted_s=booted_s,
            )
        return dataclasses.replace(
            condition,
            since_s=max(condition.since_s, down_from_s),
            until_s=min(condition.until_s, turn.end_s),
            off=condition.off or PowerLoss.FAULT,
        )
