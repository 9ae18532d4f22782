"""``simulated``: readings without hardware."""

from __future__ import annotations

import math
import random
import time
from typing import Final, Literal

from pydantic import Field

from agent.sensors.base import Sensor, SensorSettings

_STEP: Final = 0.1
"""The random walk's largest step, of its amplitude."""


class SimulatedSensor(Sensor):
    """A sine, a random walk or a constant."""

    type = "simulated"
    description = "A sine, a random walk or a constant, for trying things out."
    named_by_settings = True

    class Settings(SensorSettings):
        """The curve."""

        reading: str = Field(default="simulated", min_length=1, max_length=128, description="Name of the reading.")
        shape: Literal["constant", "random_walk", "sine"] = Field(default="sine", description="The curve.")
        mean: float = Field(default=20.0, allow_inf_nan=False, description="The constant, or what it moves around.")
        amplitude: float = Field(
            default=5.0, ge=0, allow_inf_nan=False, description="Sine and random walk stay within mean ± amplitude."
        )
        period_s: float = Field(default=600.0, gt=0, allow_inf_nan=False, description="Of the sine, s.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._begun_s = time.monotonic()
        self._offset = 0.0

    def read(self) -> dict[str, float]:
        """Make up the next value."""
        curve = self.settings
        if curve.shape == "sine":
            turns = (time.monotonic() - self._begun_s) / curve.period_s
            self._offset = math.sin(2 * math.pi * turns)
        elif curve.shape == "random_walk":
            moved = self._offset + random.uniform(-_STEP, _STEP)  # noqa: S311 - a made-up curve is no secret
            # Reflected at the bounds: at a wall it would stay for some readings, all alike.
            self._offset = moved if abs(moved) <= 1.0 else math.copysign(2.0, moved) - moved
        return {curve.reading: curve.mean + curve.amplitude * self._offset}
