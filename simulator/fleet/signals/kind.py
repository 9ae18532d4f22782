"""What the settings of every signal have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from simulator.fleet.settings import Section, key
from simulator.fleet.signals.base import Signal

DIGITS_MAX: Final = 9
"""More decimals than any sensor has, and few enough to be the same on every machine."""

Digits = Annotated[int, Field(ge=0, le=DIGITS_MAX)]


class Shape(Section):
    """What the settings of every signal have; each kind narrows ``kind`` to its word.

    Attributes:
        reads_file: it opens a file that the settings name.
        runs_code: it runs that file.
    """

    reads_file: ClassVar = False
    runs_code: ClassVar = False

    kind: str
    min: float | None = key("lower values are given as this one", default=None, example=-40)
    max: float | None = key("higher values are given as this one", default=None, example=85)
    digits: Digits = key("decimals of the sensor", default=2)
    unit: str | None = key("what the numbers are, for `plan`", default=None, example="celsius")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min:g}) is above max ({self.max:g}): swap them")
        return self

    @abstractmethod
    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe.

        Args:
            name: of the reading.
            context: what it may use beside the settings.

        Raises:
            ConfigurationError: a file cannot be used.
        """


@dataclass(frozen=True, slots=True)
class SignalContext:
    """What a signal may use beside the settings.

    Attributes:
        folder: where files are looked for that have no absolute path; the scenario's.
        origin_s: when signals begin that are played once or in step, seconds since the epoch.
    """

    folder: Path
    origin_s: float

    def begin_s(self, begin: Literal["hashed", "in_step"]) -> float | None:
        """When all devices begin; None where each begins at a point of its own."""
        return None if begin == "hashed" else self.origin_s
