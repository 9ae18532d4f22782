"""A wall clock that jumps: a person set it, a battery went flat, a time server lied."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from simulator.fleet.faults.base import DeviceFault, FaultBasis, register_fault
from simulator.fleet.models.condition import Condition, shift_clock
from simulator.fleet.settings import Delay, key
from simulator.fleet.signals.base import Individual

_CENTURY_S = 100 * 366 * 86_400.0


class ClockJumpSettings(FaultBasis):
    """Wall clocks jump, and jump back where ``duration_s`` is given."""

    kind: Literal["clock_jump"]
    jump_s: float = key("how far; below 0 it is back in time", unit="s", ge=-_CENTURY_S, le=_CENTURY_S, example=-3600.0)
    duration_s: Delay = key("after so long it jumps back; 0: never", unit="s", default=0.0)

    @model_validator(mode="after")
    def _check_jump(self) -> Self:
        if not self.jump_s:
            raise ValueError("jump_s is 0: the clock stays where it is")
        return self


@register_fault(ClockJumpSettings, sets_clocks=True)
class ClockJump(DeviceFault[ClockJumpSettings]):
    """Applies :class:`ClockJumpSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The clock after the jump."""
        condition = self.bounded(device, time_s, condition)
        if not self.acts(device, time_s):
            return condition
        return shift_clock(condition, self.settings.jump_s, since_s=self.begin_s)
