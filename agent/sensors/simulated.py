"""``simulated``: readings without hardware, the same ones for the same seed."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Literal

from pydantic import Field, model_validator

from agent.sensors.base import Sensor, SensorSettings


class SimulatedSensor(Sensor):
    """A sine, a random walk or a constant, with optional noise."""

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
        step: float = Field(default=0.5, ge=0, allow_inf_nan=False, description="The random walk's largest step.")
        noise: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Standard deviation added to each.")
        seed: int = Field(default=0, description="The same seed walks the same way.")

        @model_validator(mode="after")
        def _check_step_size(self) -> SimulatedSensor.Settings:
            if self.shape == "random_walk" and self.step > 2 * self.amplitude:
                raise ValueError("'step' must not be larger than twice 'amplitude'")
            return self

    def __init__(self, settings: Settings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(settings)
        self._curve = settings
        self._monotonic = monotonic
        self._begun_s = monotonic()
        self._random = random.Random(settings.seed)  # noqa: S311 - a made-up curve is no secret
        self._level = settings.mean

    def read(self) -> dict[str, float]:
        """Make up the next value."""
        curve = self._curve
        if curve.shape == "sine":
            turns = (self._monotonic() - self._begun_s) / curve.period_s
            self._level = curve.mean + curve.amplitude * math.sin(2 * math.pi * turns)
        elif curve.shape == "random_walk":
            moved = self._level + self._random.uniform(-curve.step, curve.step)
            self._level = min(curve.mean + curve.amplitude, max(curve.mean - curve.amplitude, moved))
        return {curve.reading: self._level + (self._random.gauss(0, curve.noise) if curve.noise else 0.0)}
