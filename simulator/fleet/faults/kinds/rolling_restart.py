"""Devices restart one after the other, as in a rolled-out update: the power goes, and comes back a while later."""

from __future__ import annotations

from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.condition import Condition, cut_power
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual, salt_of

_TURN = salt_of("fault", "rolling_restart", "turn")


class RollingRestartSettings(LastingBasis):
    """Every device restarts once, each at its own moment of the fault."""

    kind: Literal["rolling_restart"]
    away_s: Seconds = key("how long a restart takes", unit="s", default=5.0)


@register_fault(RollingRestartSettings)
class RollingRestart(DeviceFault[RollingRestartSettings]):
    """Applies :class:`RollingRestartSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The device's condition: without power for a while from its own turn on."""
        if not self.chooses(device):
            return condition
        away_s = min(self.settings.away_s, self.settings.duration_s)  # the last one is back at the fault's end
        off_s = self.begin_s + (self.settings.duration_s - away_s) * device.uniform(_TURN, 0)
        return cut_power(condition, time_s, off_s, off_s + away_s)
