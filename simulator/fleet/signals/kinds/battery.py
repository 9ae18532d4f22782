"""A battery that empties."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, Self

from pydantic import model_validator

from simulator.fleet.settings import Delay, Lifetime, Share, key
from simulator.fleet.signals.base import Individual, Signal, salt_of
from simulator.fleet.signals.kind import Digits, Shape, SignalContext, register_signal

_DAY_S: Final = 86_400.0

_LITHIUM: Final = ((0.0, 1.0), (0.1, 0.86), (0.5, 0.66), (0.8, 0.52), (0.9, 0.4), (1.0, 0.0))
"""Part of the charge used -> part of the voltage's range left, of a lithium cell: fast, flat, fast."""


class BatterySignalSettings(Shape):
    """A battery: full, empty, and charged (or changed) again; each device at its own point."""

    kind: Literal["battery"]
    full: float = key("the reading of a full battery", default=100.0)
    empty: float = key("the reading at which it is charged", default=5.0)
    life_s: Lifetime = key("from full to empty", unit="s", default=90 * _DAY_S)
    charge_s: Delay = key("from empty to full; 0: it is changed", unit="s", default=0.0)
    spread: Share = key("how much lives differ between devices, up or down, as a part of `life_s`", default=0.0, le=0.9)
    curve: Literal["linear", "lithium"] = key(
        "how the reading falls: evenly, or as a lithium cell's voltage does (fast, flat, fast)", default="linear"
    )
    digits: Digits = key("decimals of the sensor", default=3)

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        if self.empty >= self.full:
            raise ValueError(f"empty ({self.empty:g}) has to be below full ({self.full:g})")
        return self


@dataclass(frozen=True, slots=True)
class Battery:
    """A battery that falls from ``full`` to ``empty`` and is charged; each device at its own point.

    Attributes:
        life_s: seconds from full to empty.
        charge_s: from empty to full; 0: it is changed.
        spread: how much lives differ between devices, up or down, as a part of ``life_s``.
        lithium: falls as a lithium cell's voltage does; else evenly.
    """

    name: str
    full: float = 100.0
    empty: float = 5.0
    life_s: float = 90 * _DAY_S
    charge_s: float = 0.0
    spread: float = 0.0
    lithium: bool = False
    _salt: bytes = field(init=False, repr=False)
    _life_salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("battery", self.name))
        object.__setattr__(self, "_life_salt", salt_of("battery", self.name, "life"))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        life_s = self._life_s(device)
        cycle_s = life_s + self.charge_s
        at_s = (time_s / cycle_s + device.fraction(self._salt)) % 1.0 * cycle_s
        if at_s < life_s:
            return self._level(at_s / life_s)
        at_s -= life_s
        if at_s < 0 or not self.charge_s:
            return self.empty
        return self.empty + at_s / self.charge_s * (self.full - self.empty)

    def _life_s(self, device: Individual) -> float:
        if not self.spread:
            return self.life_s
        return self.life_s * (1.0 + self.spread * (2.0 * device.fraction(self._life_salt) - 1.0))

    def _level(self, used: float) -> float:
        left = 1.0 - used
        if self.lithium:
            for (from_used, from_left), (to_used, to_left) in pairwise(_LITHIUM):
                if used <= to_used:
                    left = from_left + (to_left - from_left) * (used - from_used) / (to_used - from_used)
                    break
        return self.empty + left * (self.full - self.empty)


@register_signal(BatterySignalSettings)
def make_signal(name: str, settings: BatterySignalSettings, _context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    return Battery(
        name,
        settings.full,
        settings.empty,
        settings.life_s,
        charge_s=settings.charge_s,
        spread=settings.spread,
        lithium=settings.curve == "lithium",
    )
