"""The first day of what devices read, sampled at equal distances, to be looked at before a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.models.model import Model
from simulator.fleet.signals.base import Individual

DAY_S: Final = 86_400
_SAMPLES_MAX: Final = 5760
"""Of a day: every 15 s. Whatever is shorter may be missed, and reading so often is what a preview has time for."""


@dataclass(frozen=True, slots=True)
class SignalDay:
    """One reading of a model over a day.

    Attributes:
        model, name: of the model and of the reading.
        unit: for people; empty where nobody says.
        begin_s: of the day, seconds since the epoch.
        step_s: between two samples.
        devices: index in the fleet -> the samples; None where the device is off or has no such reading.
    """

    model: str
    name: str
    unit: str
    begin_s: float
    step_s: float
    devices: Mapping[int, Sequence[float | None]]

    @property
    def values(self) -> list[float]:
        """All that were read."""
        return [value for samples in self.devices.values() for value in samples if value is not None]

    @property
    def missing(self) -> float:
        """The part of the samples without a reading, 0 to 1."""
        total = sum(len(samples) for samples in self.devices.values())
        return 1 - len(self.values) / total if total else 1.0


def signal_days(model: Model, seed: int, devices: Sequence[int], units: Mapping[str, str]) -> tuple[SignalDay, ...]:
    """The day from ``model.origin_s`` on of each reading, in the order in which they first appear.

    Args:
        model: of the devices.
        seed: of the scenario.
        devices: indices in the fleet.
        units: of readings, by name.
    """
    step_s = max(model.every_s, DAY_S / _SAMPLES_MAX)
    count = math.ceil(DAY_S / step_s)
    found: dict[str, dict[int, list[float | None]]] = {}
    for index in devices:
        device = Individual.at(seed, index)
        for number in range(count):
            time_s = model.origin_s + number * step_s
            condition = model.condition_at(device, time_s)
            readings = {} if condition.off else model.read(device, time_s, condition)
            for name, value in readings.items():
                samples = found.setdefault(name, {}).setdefault(index, [None] * count)
                samples[number] = value
    return tuple(
        SignalDay(model.name, name, units.get(name, ""), model.origin_s, step_s, by_device)
        for name, by_device in found.items()
    )
