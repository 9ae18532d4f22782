"""Timers that all devices run in the same moment, as no real fleet does until somebody sets them so."""

from __future__ import annotations

import dataclasses
from typing import Literal

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.models.fault_hooks import Pace
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual


class InStepTimersSettings(LastingBasis):
    """Readings are made at the same instant by all."""

    kind: Literal["in_step_timers"]
    every_s: Seconds | None = key("between two readings; without it, as before", unit="s", default=None)


@register_fault(InStepTimersSettings)
class InStepTimers(DeviceFault[InStepTimersSettings]):
    """Applies :class:`InStepTimersSettings` to the devices of one run."""

    def schedule(self, device: Individual, time_s: float, pace: Pace) -> Pace:
        """The pace with the phase of everybody: whole multiples of the interval since the fault began."""
        if not self.acts(device, time_s):
            return pace
        every_s = self.settings.every_s or pace.every_s
        return dataclasses.replace(pace, every_s=every_s, phase_s=self.begin_s % every_s)
