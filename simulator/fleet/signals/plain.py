"""Signals without memory: a constant, noise, and what follows another signal."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from simulator.fleet.signals.base import Individual, Signal, millisecond_of, salt_of
from simulator.fleet.signals.formula import Formula

_UNIFORM_REACH: Final = math.sqrt(12.0)
"""Width of a uniform distribution with a standard deviation of 1."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    value: float

    def value_at(self, device: Individual, time_s: float) -> float:  # noqa: ARG002 - a Signal
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        return self.value


@dataclass(frozen=True, slots=True)
class Noise:
    """Each millisecond on its own.

    Attributes:
        uniform: evenly spread instead of normally.
    """

    name: str
    mean: float
    deviation: float
    uniform: bool = False
    _salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("noise", self.name))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        which = millisecond_of(time_s)
        if self.uniform:
            return self.mean + self.deviation * _UNIFORM_REACH * (device.uniform(self._salt, which) - 0.5)
        return self.mean + self.deviation * device.normal(self._salt, which)


@dataclass(frozen=True, slots=True)
class Since:
    """Another signal on the run's own time: what it is at 0, this one is at ``origin_s``."""

    signal: Signal
    origin_s: float

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        return self.signal.value_at(device, time_s - self.origin_s)


@dataclass(frozen=True, slots=True)
class Correlated:
    """Follows another signal of the same device.

    Attributes:
        follows: the other one.
        lag_s: how much later.
        noise: standard deviation of what each reading adds.
    """

    name: str
    follows: Signal
    factor: float = 1.0
    offset: float = 0.0
    lag_s: float = 0.0
    noise: float = 0.0
    _salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("correlated", self.name))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        value = self.offset + self.factor * self.follows.value_at(device, time_s - self.lag_s)
        if self.noise:
            value += self.noise * device.normal(self._salt, millisecond_of(time_s))
        return value


class Computed:
    """A formula over other signals of the same device.

    Args:
        formula: what is computed.
        signals: the others; every name that the formula uses is in it.
    """

    __slots__ = ("_formula", "_signals")

    def __init__(self, formula: Formula, signals: dict[str, Signal]) -> None:
        self._formula = formula
        self._signals = signals

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""

        def number(name: str) -> float:
            if name == "t":
                return time_s
            return float(device.index) if name == "index" else self._signals[name].value_at(device, time_s)

        return self._formula.evaluate(number)
