"""The signals of a scenario: what each reading of a device model looks like over time, by ``kind``.

Values only; :func:`simulator.fleet.signals.build.build_signals` makes signals of them. A file's path is taken from
the scenario's folder.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from simulator.fleet.settings import Delay, Lifetime, ReadingName, Seconds, Section, Share, key
from simulator.fleet.signals.formula import check_formula

_DAY_S: Final = 86_400.0
DIGITS_MAX: Final = 9
"""More decimals than any sensor has, and few enough to be the same on every machine."""

STATES_MAX: Final = 32

Digits = Annotated[int, Field(ge=0, le=DIGITS_MAX)]
StateName = Annotated[str, Field(min_length=1, max_length=64)]


class Shape(Section):
    """What every signal has beside its kind: bounds, decimals and unit."""

    min: float | None = key("lower values are given as this one", default=None, example=-40)
    max: float | None = key("higher values are given as this one", default=None, example=85)
    digits: Digits = key("decimals of the sensor", default=2)
    unit: str | None = key("what the numbers are, for `plan`", default=None, example="celsius")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min:g}) is above max ({self.max:g}): swap them")
        return self


class ConstantSettings(Shape):
    """Always the same."""

    kind: Literal["constant"]
    value: float = key("the value")


class SineSettings(Shape):
    """A wave."""

    kind: Literal["sine"]
    mean: float = key("the middle of the wave", default=0.0)
    amplitude: float = key("from the middle to the top", ge=0, default=1.0)
    period_s: Seconds = key("length of a wave", unit="s")
    phase: Share | Literal["hashed"] = key(
        "where in the wave the epoch lies, as a part of it; `hashed`: each device somewhere else", default="hashed"
    )
    noise: float = key("standard deviation of what each reading adds", ge=0, default=0.0)


class DiurnalSettings(Shape):
    """The wave of a day: highest at ``peak_hour``, lowest twelve hours later."""

    kind: Literal["diurnal"]
    mean: float = key("the day's middle")
    amplitude: float = key("from the middle to the day's top", ge=0)
    peak_hour: float = key("hour of the day, UTC, with the highest value", ge=0, lt=24, default=15.0, unit="h")
    noise: float = key("standard deviation of what each reading adds", ge=0, default=0.0)
    spread: float = key("standard deviation of the devices' means around `mean`", ge=0, default=0.0)


class RandomWalkSettings(Shape):
    """A random walk that comes back to ``start`` once in ``span_s``."""

    kind: Literal["random_walk"]
    start: float = key("what the walk comes back to")
    step: float = key("standard deviation of the change within one second", ge=0)
    span_s: Seconds = key("how long it may stray", unit="s", default=3600.0)
    resolution_s: Seconds = key("below it the walk is a straight line", unit="s", default=1.0)
    spread: float = key("standard deviation of the devices' starts around `start`", ge=0, default=0.0)


class NoiseSettings(Shape):
    """Each reading on its own, without memory."""

    kind: Literal["noise"]
    distribution: Literal["normal", "uniform"] = key("the distribution", default="normal")
    mean: float = key("its mean", default=0.0)
    deviation: float = key(
        "its standard deviation; `uniform` reaches from mean - 1.732 x deviation to mean + 1.732 x deviation",
        ge=0,
        default=1.0,
    )


class Step(Section):
    """One step: a value and how long it lasts."""

    value: float = key("the value")
    for_s: Seconds = key("how long", unit="s")


class StepsSettings(Shape):
    """Values one after the other, from the beginning again after the last."""

    kind: Literal["steps"]
    steps: tuple[Step, ...] = key("the steps in their order", min_length=1, max_length=10_000)
    phase: Literal["hashed", "in_step"] = key(
        "`hashed`: each device begins somewhere in the steps; `in_step`: all at the same", default="hashed"
    )


class ChainState(Section):
    """One state of a Markov chain."""

    value: float = key("what the reading shows in this state")
    stay_s: Seconds = key("how long the chain stays on average", unit="s")
    stay: Literal["exponential", "fixed"] = key(
        "`exponential`: hashed lengths around `stay_s`; `fixed`: exactly so long",
        default="exponential",
    )
    next: dict[StateName, Annotated[float, Field(gt=0)]] = key(
        "where it goes from here: weights; without it, to any other state alike", default_factory=dict
    )


class MarkovSettings(Shape):
    """A chain of states with hashed lengths, such as a door that is open or shut."""

    kind: Literal["markov"]
    states: dict[StateName, ChainState] = key("the states by name", min_length=2, max_length=STATES_MAX)

    @model_validator(mode="after")
    def _check_ways(self) -> Self:
        check_ways({name: state.next for name, state in self.states.items()})
        return self


class CsvSettings(Shape):
    """Recorded values, replayed."""

    kind: Literal["csv"]
    file: str = key("CSV file with a line of column names", min_length=1, example="recordings/office.csv")
    column: str = key(
        "the column with the values; an empty cell is left out. Columns of one file stay lines on a device",
        min_length=1,
    )
    time_column: str | None = key(
        "the column with the times: seconds, epoch milliseconds or RFC 3339; without it the lines are `every_s` apart",
        default=None,
    )
    every_s: Seconds | None = key("distance of a device's lines where no column has times", unit="s", default=None)
    device_column: str | None = key(
        "the column that says whose a line is, in a file of several devices: device number n plays the lines of the "
        "n-th of them, and begins again with the first; without it, such a file is refused",
        default=None,
        min_length=1,
    )
    between: Literal["linear", "hold"] = key(
        "between two lines: a straight line, or the earlier value", default="linear"
    )
    loop: bool = key("begin again at the end; else the last value stays", default=True)
    begin: Literal["hashed", "in_step"] = key(
        "`hashed`: each device begins at a point of its own; `in_step`: all at the first line, at the epoch when it "
        "loops",
        default="hashed",
    )

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if (self.time_column is None) == (self.every_s is None):
            raise ValueError("give either time_column or every_s")
        return self


class GpsRouteSettings(Section):
    """A drive along recorded points; gives four readings: latitude, longitude, heading and speed."""

    kind: Literal["gps_route"]
    file: str = key("GPX file, or CSV with the columns latitude and longitude", min_length=1, example="routes/van.gpx")
    speed_mps: float = key("speed along the route", unit="m/s", gt=0, le=1000, default=13.9)
    at_the_end: Literal["turn_back", "jump_to_start", "stay"] = key("what a device does there", default="turn_back")
    begin: Literal["hashed", "in_step"] = key(
        "`hashed`: each device begins somewhere on the route; `in_step`: all at the first point", default="hashed"
    )
    noise_m: float = key("standard deviation of the receiver's error, north and east", unit="m", ge=0, default=0.0)
    latitude: ReadingName = key("name of the reading with degrees north", default="latitude")
    longitude: ReadingName = key("name of the reading with degrees east", default="longitude")
    heading: ReadingName = key("name of the reading with degrees from north, clockwise", default="heading_degrees")
    speed: ReadingName = key("name of the reading with metres per second", default="speed_mps")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if len(set(self.names)) < len(self.names):
            raise ValueError("latitude, longitude, heading and speed need four different names")
        return self

    @property
    def names(self) -> tuple[str, str, str, str]:
        """The four readings."""
        return self.latitude, self.longitude, self.heading, self.speed


class FormulaSettings(Shape):
    """Arithmetic over other readings of the same device."""

    kind: Literal["formula"]
    expression: str = key(
        "arithmetic over readings, `t` (seconds since the epoch), `index` (of the device), `pi`; "
        "+ - * / // % **, comparisons (1 or 0), `a if b else c`, and/or/not, abs min max round floor ceil sqrt exp "
        "log sin cos tanh clip",
        min_length=1,
        max_length=500,
        example="temperature_celsius * 1.8 + 32",
    )

    @model_validator(mode="after")
    def _check_expression(self) -> Self:
        check_formula(self.expression)
        return self


class CorrelatedSettings(Shape):
    """Follows another reading: ``offset + factor * reading(t - lag_s)``, with noise."""

    kind: Literal["correlated"]
    follows: ReadingName = key("the other reading of the same device")
    factor: float = key("what it is multiplied with; below 0 it goes the other way", default=1.0)
    offset: float = key("what is added", default=0.0)
    lag_s: Delay = key("how much later it follows", unit="s", default=0.0)
    noise: float = key("standard deviation of what each reading adds", ge=0, default=0.0)


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


SignalSettings = Annotated[
    ConstantSettings
    | SineSettings
    | DiurnalSettings
    | RandomWalkSettings
    | NoiseSettings
    | StepsSettings
    | MarkovSettings
    | CsvSettings
    | GpsRouteSettings
    | FormulaSettings
    | CorrelatedSettings
    | BatterySignalSettings,
    Field(discriminator="kind"),
]
"""One signal of a scenario. ``SignalMap`` is what a model's ``signals`` takes."""

SignalMap = Annotated[dict[ReadingName, SignalSettings], Field(min_length=1, max_length=100)]
"""Signals by reading name. A ``gps_route`` stands under any name and gives four readings of its own names."""


def check_ways(ways: dict[str, dict[str, float]]) -> None:
    """Every state's ways lead to states that there are, and not to itself.

    Args:
        ways: of each state, the next states and their weights.

    Raises:
        ValueError: they do not; the text names the states that there are.
    """
    for name, nexts in ways.items():
        for other in nexts:
            if other not in ways:
                raise ValueError(f"state {name}: next names {other!r}, which is none of {', '.join(ways)}")
            if other == name:
                raise ValueError(f"state {name}: next names itself; make stay_s longer instead")
