"""What a device model may have beside its signals: states, a battery, firmware, reboots and a clock of its own.

The room stands between ``device`` and ``signals``; the scenario's ``models`` are made of these sections.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from simulator.fleet.settings import Delay, Lifetime, ReadingName, Seconds, Section, Share, key
from simulator.fleet.signals.chain import STATES_MAX, StateName, check_ways
from simulator.fleet.signals.registry import SignalSettings

_DAY_S: Final = 86_400.0

Version = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
Weight = Annotated[float, Field(gt=0)]


class StateSettings(Section):
    """One state of a device, such as ``idle``, ``active`` or ``fault``."""

    stay_s: Seconds = key("how long a device stays in it on average", unit="s")
    stay: Literal["exponential", "fixed"] = key(
        "`exponential`: hashed lengths around `stay_s`; `fixed`: exactly so long", default="exponential"
    )
    next: dict[StateName, Weight] = key(
        "where it goes from here: weights; without it, to any other state alike", default_factory=dict
    )
    powered: bool = key("false: in this state the device is off", default=True)
    telemetry_every_s: Seconds | None = key(
        "between two readings in this state; without it, as the model says", unit="s", default=None
    )
    signals: dict[ReadingName, SignalSettings] = key(
        "readings that look different in this state, or that there are only in it", default_factory=dict
    )


States = Annotated[dict[StateName, StateSettings], Field(min_length=2, max_length=STATES_MAX)]
"""A model's ``states``, by name; check them with :func:`check_states`."""


def check_states(states: dict[str, StateSettings]) -> dict[str, StateSettings]:
    """The same states.

    Raises:
        ValueError: a way leads to a state that there is not, or in none of them a device has power.
    """
    check_ways({name: state.next for name, state in states.items()})
    if not any(state.powered for state in states.values()):
        raise ValueError("the device is off in all of its states; give one of them 'powered: true'")
    return states


class BatterySettings(Section):
    """A battery that empties and leaves the device dead until somebody charges it."""

    reading: ReadingName | None = key(
        "the reading that shows it; null for a device that reports none", default="battery_percent"
    )
    life_s: Lifetime = key("from full to empty", unit="s", default=90 * _DAY_S)
    dead_s: Delay = key("how long nobody notices that it is empty", unit="s", default=6 * 3600.0)
    charge_s: Delay = key("from empty to full; the device is on meanwhile", unit="s", default=2 * 3600.0)
    full: float = key("the reading of a full battery", default=100.0)
    empty: float = key("the reading at which the device dies", default=0.0)
    spread: Share = key("how much lives differ between devices, up or down, as a part of `life_s`", default=0.2, le=0.9)
    curve: Literal["linear", "lithium"] = key("how the reading falls, see the signal `battery`", default="linear")
    digits: Annotated[int, Field(ge=0, le=9)] = key("decimals of the reading", default=1)

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        if self.empty >= self.full:
            raise ValueError(f"empty ({self.empty:g}) has to be below full ({self.full:g})")
        return self


class FirmwareSettings(Section):
    """Which firmware devices have, and how an update goes (command ``update_firmware`` with ``version``)."""

    versions: dict[Version, Weight] = key(
        "versions that devices leave the factory with, and their weights", min_length=1, max_length=50
    )
    update_s: Seconds = key("how long an update takes, with the restart at its end", unit="s", default=60.0)
    failure_share: Share = key("which part of the updates fails and leaves the old version", default=0.0)


class RebootSettings(Section):
    """Devices lose their power now and then."""

    every_s: Seconds = key("mean time between two power losses of one device", unit="s")
    away_s: Seconds = key("how long it is gone", unit="s", default=10.0)

    @model_validator(mode="after")
    def _check_away(self) -> Self:
        if self.away_s > self.every_s / 2:
            raise ValueError(f"away_s ({self.away_s:g}) is more than half of every_s ({self.every_s:g})")
        return self


class ClockSettings(Section):
    """The device's own wall clock."""

    offset_s: Delay = key("standard deviation of how far clocks are off, either way", unit="s", default=0.0)
    drift_ppm: float = key(
        "standard deviation of how fast they run, in millionths; 20 are 1.7 s a day", ge=0, le=100_000, default=0.0
    )
    set_every_s: Seconds | None = key(
        "how often the clock is set, which ends what it drifted since; without it, at the run's begin",
        unit="s",
        default=None,
    )
