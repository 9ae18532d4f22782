"""The kinds of signals but recordings: each is its settings, and what they make."""

from __future__ import annotations

import math
import runpy
import struct
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from agent.errors import ConfigurationError
from simulator.fleet.settings import Delay, Lifetime, Seconds, Section, Share, key
from simulator.fleet.signals.base import Individual, Signal, millisecond_of, salt_of
from simulator.fleet.signals.chain import STATES_MAX, Chain, ChainState, StateName, check_ways
from simulator.fleet.signals.kind import Digits, Shape, SignalContext


class ConstantSettings(Shape):
    """Always the same."""

    kind: Literal["constant"]
    value: float = key("the value")

    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe."""
        return Constant(self.value)


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    value: float

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        return self.value


_DAY_S: Final = 86_400.0


class DiurnalSettings(Shape):
    """The wave of a day: highest at ``peak_hour``, lowest twelve hours later."""

    kind: Literal["diurnal"]
    mean: float = key("the day's middle")
    amplitude: float = key("from the middle to the day's top", ge=0)
    peak_hour: float = key("hour of the day, UTC, with the highest value", ge=0, lt=24, default=15.0, unit="h")
    noise: float = key("standard deviation of what each reading adds", ge=0, default=0.0)
    spread: float = key("standard deviation of the devices' means around `mean`", ge=0, default=0.0)

    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe."""
        spread = self.spread
        return Diurnal(name, self.mean, self.amplitude, self.noise, self.peak_hour, spread=spread)


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A wave of one day with noise on it: warmest in the afternoon, coldest before dawn.

    Attributes:
        mean, amplitude: of the wave.
        noise: standard deviation of what each reading adds.
        peak_hour: hour of the day in UTC with the highest value.
        spread: standard deviation of the devices' own means around ``mean``.
    """

    name: str
    mean: float
    amplitude: float
    noise: float = 0.0
    peak_hour: float = 15.0
    spread: float = 0.0
    _salt: bytes = field(init=False, repr=False)
    _device_salt: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salt", salt_of("diurnal", self.name))
        object.__setattr__(self, "_device_salt", salt_of("diurnal", self.name, "mean"))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        turn = (time_s / _DAY_S - self.peak_hour / 24.0) % 1.0
        value = self.mean + self.amplitude * math.cos(math.tau * turn)
        if self.noise:
            value += self.noise * device.normal(self._salt, millisecond_of(time_s))
        if self.spread:
            value += self.spread * device.normal(self._device_salt, 0)
        return value


_STEPS: Final = 512
"""Bits of a digest: so many steps up or down of one bridge."""

_HALF_STEPS: Final = _STEPS / 2
_LAST: Final = _STEPS - 1
_LEVELS_MAX: Final = 3

_FINE_STEPS: Final = 64
"""Of the bridge between two of the last digest's steps, out of the same digest."""

_HALF_FINE_STEPS: Final = _FINE_STEPS / 2
_FINE_LAST: Final = _FINE_STEPS - 1
_FINE_MASK: Final = (1 << _FINE_STEPS) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MIDDLE: Final = 256

_TWO_64: Final = float(1 << 64)
_pack: Final = struct.Struct("<qQ").pack
from_bytes: Final = int.from_bytes


class RandomWalkSettings(Shape):
    """A random walk that comes back to ``start`` once in ``span_s``."""

    kind: Literal["random_walk"]
    start: float = key("what the walk comes back to")
    step: float = key("standard deviation of the change within one second", ge=0)
    span_s: Seconds = key("how long it may stray", unit="s", default=3600.0)
    resolution_s: Seconds = key("below it the walk is a straight line", unit="s", default=1.0)
    spread: float = key("standard deviation of the devices' starts around `start`", ge=0, default=0.0)

    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe."""
        spread = self.spread
        return RandomWalk(name, self.start, self.step, self.span_s, self.resolution_s, spread=spread)


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """A random walk (Brownian motion) around ``start``, which returns to it within ``span_s``.

    The walk of each span is a bridge of 512 steps up or down, one for each bit of a digest: how high it stands after
    ``n`` of them is a count of bits. Between two of its points lies a bridge of 64 smaller steps, whose bits are the
    middle of the digest times a number of its own (a product of 512 and 64 bits); where that is not fine enough
    another digest comes in between. An hour to the second costs one digest for any instant.

    Attributes:
        name: another one gives another chance on the same device.
        start: the mean, and the value at each span's ends.
        step: standard deviation of the change within one second.
        span_s, resolution_s: length of a bridge; below the resolution the walk is a straight line.
        spread: standard deviation of the devices' own starts around ``start``.
    """

    name: str
    start: float
    step: float
    span_s: float = 3600.0
    resolution_s: float = 1.0
    spread: float = 0.0
    _salt: bytes = field(init=False, repr=False)
    _number: int = field(init=False, repr=False)
    _heights: tuple[float, ...] = field(init=False, repr=False)
    """Height of one step of each digest's bridge."""
    _fine_height: float = field(init=False, repr=False)
    """Of the last bridge's; 0 without one."""

    def __post_init__(self) -> None:
        length_s = self.span_s / _STEPS
        heights = [self.step * math.sqrt(length_s)]
        while length_s > self.resolution_s * _FINE_STEPS and len(heights) < _LEVELS_MAX:
            length_s /= _STEPS
            heights.append(self.step * math.sqrt(length_s))
        is_fine = length_s <= self.resolution_s
        object.__setattr__(self, "_salt", salt_of("random_walk", self.name))
        object.__setattr__(self, "_number", int.from_bytes(self._salt, "little"))
        object.__setattr__(self, "_heights", tuple(heights))
        object.__setattr__(self, "_fine_height", 0.0 if is_fine else self.step * math.sqrt(length_s / _FINE_STEPS))

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        # A device begins somewhere on its own walk, not every device at the same corner of it.
        turns = time_s / self.span_s + (device.number ^ self._number) / _TWO_64
        span = math.floor(turns)
        part = turns - span
        place = bits = step = 0
        value = self.start
        prefix = device.key + self._salt
        for height in self._heights:
            bits = from_bytes(blake2b(prefix + _pack(span, place)).digest(), "little")
            slope = bits.bit_count() / _HALF_STEPS - 1.0
            at = part * _STEPS
            step = int(at)
            part = at - step
            left = bits >> (_STEPS - step)
            # Up and down so far, less the slope that would not lead back to the beginning.
            risen = 2 * left.bit_count() - step + (part if bits >> (_LAST - step) & 1 else -part)
            value += height * (risen - at * slope)
            place = place * _STEPS + step + 1
        if self._fine_height:
            fine = bits * ((step * _GOLDEN & _FINE_MASK) | 1) >> _MIDDLE & _FINE_MASK
            at = part * _FINE_STEPS
            step = int(at)
            part = at - step
            risen = 2 * (fine >> (_FINE_STEPS - step)).bit_count() - step
            risen += part if fine >> (_FINE_LAST - step) & 1 else -part
            value += self._fine_height * (risen - at * (fine.bit_count() / _HALF_FINE_STEPS - 1.0))
        if self.spread:
            value += self.spread * device.normal(self._salt, 0)
        return value


class MarkovState(Section):
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
    states: dict[StateName, MarkovState] = key("the states by name", min_length=2, max_length=STATES_MAX)

    @model_validator(mode="after")
    def _check_ways(self) -> Self:
        check_ways({name: state.next for name, state in self.states.items()})
        return self

    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe."""
        states = {
            state: ChainState(described.stay_s, described.stay == "fixed", described.next)
            for state, described in self.states.items()
        }
        return Markov(name, states, {state: described.value for state, described in self.states.items()})


class Markov:
    """Shows the state of a chain as a number.

    Args:
        name: another one gives another chance on the same device.
        states: of the chain.
        values: what is shown in each.
    """

    __slots__ = ("_chain", "_values")

    def __init__(self, name: str, states: Mapping[str, ChainState], values: Mapping[str, float]) -> None:
        self._chain = Chain(name, states)
        self._values = dict(values)

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        return self._values[self._chain.interval_at(device, time_s).state]


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

    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe."""
        return Battery(
            name,
            self.full,
            self.empty,
            self.life_s,
            charge_s=self.charge_s,
            spread=self.spread,
            lithium=self.curve == "lithium",
        )


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


Function = Callable[[Individual, float], float]


class PythonSettings(Shape):
    """What a function of a Python file returns. The file has all rights of whoever starts the run: `--allow-python`."""

    reads_file: ClassVar = True
    runs_code: ClassVar = True
    kind: Literal["python"]
    file: str = key("Python file with the function", min_length=1, example="values.py")
    function: str = key(
        "its function of a device (`index`, `seed`) and the time in seconds since the epoch, and of nothing else: "
        "workers ask in any order. It returns a number, or NaN where there is no reading",
        default="value",
        min_length=1,
    )

    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe; the function is tried once."""
        path = context.folder / self.file
        function = _names_of(path).get(self.function)
        if not callable(function):
            raise ConfigurationError([f"has no function {self.function!r}"], str(path))
        signal = PythonFunction(path, self.function, function)
        signal.value_at(Individual.at(0, 0), context.origin_s)
        return signal


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of a file."""

    path: Path
    name: str
    function: Function

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none.

        Raises:
            ConfigurationError: the function fails, or returns no number.
        """
        try:
            value = self.function(device, time_s)
        except Exception as error:  # noqa: BLE001 - whatever the function does is reported in one line
            raise _fault(self.path, error) from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigurationError(
                [f"{self.name}() returned {value!r:.60}, and has to return a number"], str(self.path)
            )
        return value


@lru_cache(maxsize=64)  # a file may have many functions, and a model many signals
def _names_of(path: Path) -> dict[str, Any]:
    try:
        return runpy.run_path(str(path), run_name="fleet_signals")
    except Exception as error:  # noqa: BLE001 - whatever the file does is reported in one line
        raise _fault(path, error) from None


def _fault(path: Path, error: Exception) -> ConfigurationError:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return ConfigurationError([f"{where}{type(error).__name__}: {str(error)[:200]}"], str(path))
