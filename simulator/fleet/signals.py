"""What a virtual device's sensors read, as a function of seed, device and time: seven kinds of signals.

Nothing that decides a value is remembered between two calls: the same arguments give the same number, in whatever order
and in whichever process they are asked for. Time is seconds since the epoch. Chance is BLAKE2b (RFC 7693) of seed,
device, signal and a whole number.

A kind is one class: its fields are the keys of a scenario, ``make`` gives the function of device and time.
"""

from __future__ import annotations

import csv
import math
import runpy
import struct
import time
import traceback
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.encoding import parse_time
from agent.wire.models import JsonObject, list_faults
from simulator.fleet.settings import Delay, ReadingName, Seconds, Section

READING: Final = "reading"
"""What the phase of a device's readings is hashed with."""

_TWO_64: Final = float(1 << 64)
_MASK_64: Final = (1 << 64) - 1
_NUMBER: Final = struct.Struct("<Q").pack
_PAIR: Final = struct.Struct("<QQ")
_SPAN_AND_PLACE: Final = struct.Struct("<qQ").pack
_DAY_S: Final = 86_400.0


# --- chance -----------------------------------------------------------------------------------------------------------


def device_key(seed: int, index: int) -> str:
    """What the phases of a device are hashed from: no id of the service's, which is another one in each run."""
    return f"{seed}/{index}"


def salt_of(*parts: str) -> bytes:
    """A salt, so that each use of chance has numbers of its own."""
    return blake2b("\x1f".join(parts).encode(), digest_size=8).digest()


class DeviceRandom:
    """Where the chance of one device comes from; the same in every run with this seed.

    ``memo`` decides nothing: a signal keeps there what it would find again.

    Args:
        seed: of the run.
        name: of the device.
        index: its place in the fleet.
    """

    __slots__ = ("index", "key", "memo", "name", "number", "seed")

    def __init__(self, seed: int, name: str, index: int = 0) -> None:
        self.seed = seed
        self.name = name
        self.index = index
        self.key = blake2b(f"{seed}\x1f{name}".encode(), digest_size=16).digest()
        self.number = int.from_bytes(self.key[:8], "little")
        self.memo: dict[bytes, Any] = {}

    @classmethod
    def at(cls, seed: int, index: int) -> DeviceRandom:
        """The device with this index in a fleet, whichever id a service gives it."""
        return cls(seed, str(index), index)

    def fraction(self, salt: bytes) -> float:
        """A number in [0, 1) for this device and salt; costs nearly nothing. Those of two salts are not independent."""
        return (self.number ^ int.from_bytes(salt, "little")) / _TWO_64 % 1.0

    def uniform(self, salt: bytes, which: int) -> float:
        """A number in (0, 1) that depends on the device and the arguments alone; ``which`` is at least 0."""
        digest = blake2b(self.key + salt + _NUMBER(which & _MASK_64), digest_size=8).digest()
        return (int.from_bytes(digest, "little") + 0.5) / _TWO_64

    def normal(self, salt: bytes, which: int) -> float:
        """A number of the standard normal distribution (Box and Muller, 1958)."""
        digest = blake2b(self.key + salt + _NUMBER(which & _MASK_64), digest_size=16).digest()
        radius, angle = _PAIR.unpack(digest)
        return math.sqrt(-2.0 * math.log((radius + 1.0) / (_TWO_64 + 2.0))) * math.cos(math.tau * angle / _TWO_64)


ValueAt = Callable[[DeviceRandom, float], float]
"""The reading of a device at a time; NaN where it has none."""


# --- what all kinds have ----------------------------------------------------------------------------------------------


class Signal(Section):
    """What every kind has."""

    kind: str
    min: float | None = Field(description="lower values are given as this one", default=None)
    max: float | None = Field(description="higher values are given as this one", default=None)
    digits: Annotated[int, Field(ge=0, le=9)] = Field(description="decimals of the sensor", default=2)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min:g}) is above max ({self.max:g}): swap them")
        return self

    @abstractmethod
    def make(self, name: str, folder: Path) -> ValueAt:
        """The function that the settings describe, for the reading of this name.

        Args:
            name: of the reading.
            folder: relative paths start here.

        Raises:
            ConfigurationError: a file cannot be used.
        """


class SignalSet:
    """All signals of a device model, by reading name."""

    __slots__ = ("_rows",)

    def __init__(self, signals: Mapping[str, tuple[Signal, ValueAt]]) -> None:
        self._rows = {
            name: (
                value_at,
                -math.inf if settings.min is None else settings.min,
                math.inf if settings.max is None else settings.max,
                settings.digits,
            )
            for name, (settings, value_at) in signals.items()
        }

    def read(self, device: DeviceRandom, time_s: float) -> dict[str, float]:
        """Every reading of one device at one instant; those that have no finite value then are left out."""
        values: dict[str, float] = {}
        for name, (value_at, low, high, digits) in self._rows.items():
            value = value_at(device, time_s)
            if value - value != 0.0:  # infinite, or not a number
                continue
            if value < low:
                value = low
            elif value > high:
                value = high
            values[name] = round(value, digits)
        return values


# --- the kinds --------------------------------------------------------------------------------------------------------


class Constant(Signal):
    """Always the same."""

    kind: Literal["constant"]
    value: float = Field(description="the value")

    def make(self, name: str, folder: Path) -> ValueAt:
        return lambda _device, _time_s: self.value


class Diurnal(Signal):
    """The wave of a day: highest at ``peak_hour``, lowest twelve hours later."""

    kind: Literal["diurnal"]
    mean: float = Field(description="the day's middle")
    amplitude: float = Field(description="from the middle to the day's top", ge=0)
    peak_hour: float = Field(description="hour of the day, UTC, with the highest value", ge=0, lt=24, default=15.0)
    noise: float = Field(description="standard deviation of what each reading adds", ge=0, default=0.0)
    spread: float = Field(description="standard deviation of the devices' means around `mean`", ge=0, default=0.0)

    def make(self, name: str, folder: Path) -> ValueAt:
        noise_salt, spread_salt = salt_of("diurnal", name), salt_of("diurnal", name, "mean")
        mean, amplitude, noise, spread, peak = self.mean, self.amplitude, self.noise, self.spread, self.peak_hour / 24

        def value_at(device: DeviceRandom, time_s: float) -> float:
            value = mean + amplitude * math.cos(math.tau * (time_s / _DAY_S - peak))
            if noise:
                value += noise * device.normal(noise_salt, round(time_s * 1000))
            if spread:
                value += spread * device.normal(spread_salt, 0)
            return value

        return value_at


_STEPS: Final = 512
"""Bits of a digest: so many steps up or down of the walk of one span."""
_FINE: Final = 64
"""Of the smaller walk between two of these steps."""
_FINE_MASK: Final = (1 << _FINE) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


class RandomWalk(Signal):
    """A random walk (Brownian motion) that comes back to ``start`` once in ``span_s``."""

    kind: Literal["random_walk"]
    start: float = Field(description="what the walk comes back to")
    step: float = Field(description="standard deviation of the change within one second", ge=0)
    span_s: Seconds = Field(description="how long it may stray", default=3600.0)
    spread: float = Field(description="standard deviation of the devices' starts around `start`", ge=0, default=0.0)

    def make(self, name: str, folder: Path) -> ValueAt:
        """Each span is a bridge of 512 steps up or down, one for each bit of a digest, so that how high it stands after
        ``n`` of them is a count of bits. Between two of its points lies a bridge of 64 smaller steps, whose bits are
        the middle of the digest times a number of their own. One digest for any instant.
        """
        salt = salt_of("random_walk", name)
        number, start, span_s, spread = int.from_bytes(salt, "little"), self.start, self.span_s, self.spread
        height = self.step * math.sqrt(span_s / _STEPS)
        fine_height = height / math.sqrt(_FINE)
        from_bytes = int.from_bytes

        def value_at(device: DeviceRandom, time_s: float) -> float:
            # A device begins somewhere on its own walk, not every device at the same corner of it.
            turns = time_s / span_s + (device.number ^ number) / _TWO_64
            span = math.floor(turns)
            at = (turns - span) * _STEPS
            step = int(at)
            part = at - step
            bits = from_bytes(blake2b(device.key + salt + _SPAN_AND_PLACE(span, 0)).digest(), "little")
            # Up and down so far, less the slope that would not lead back to the beginning.
            risen = 2.0 * (bits >> (_STEPS - step)).bit_count() - step
            risen += part if bits >> (_STEPS - 1 - step) & 1 else -part
            value = start + height * (risen - at * (bits.bit_count() * 2 / _STEPS - 1.0))
            fine = bits * ((step * _GOLDEN & _FINE_MASK) | 1) >> (_STEPS // 2) & _FINE_MASK
            at = part * _FINE
            step = int(at)
            part = at - step
            risen = 2.0 * (fine >> (_FINE - step)).bit_count() - step
            risen += part if fine >> (_FINE - 1 - step) & 1 else -part
            value += fine_height * (risen - at * (fine.bit_count() * 2 / _FINE - 1.0))
            return value + spread * device.normal(salt, 0) if spread else value

        return value_at


class MarkovState(Section):
    """One state of a chain."""

    value: float = Field(description="what the reading shows in this state")
    stay_s: Seconds = Field(description="how long the chain stays on average (exponentially distributed)")
    next: dict[str, Annotated[float, Field(gt=0)]] = Field(
        description="where it goes from here: weights; without it, to any other state alike", default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class _Stay:
    """The ``count``-th stay of a block of a chain."""

    block: int
    count: int
    state: str
    since_s: float
    until_s: float


class Markov(Signal):
    """A chain of states, such as a door that is open or shut."""

    kind: Literal["markov"]
    states: dict[str, MarkovState] = Field(description="the states by name", min_length=2, max_length=32)

    @model_validator(mode="after")
    def _check_ways(self) -> Self:
        for name, state in self.states.items():
            for other in state.next:
                if other not in self.states:
                    raise ValueError(f"state {name}: next names {other!r}, which is none of {', '.join(self.states)}")
                if other == name:
                    raise ValueError(f"state {name}: next names itself; make stay_s longer instead")
        return self

    def make(self, name: str, folder: Path) -> ValueAt:
        """The chain is cut into blocks of a hundred of its longest stays, each lived through from its begin, in a state
        drawn by how long states last: an instant costs a block at most, and the next one after it costs nothing.
        """
        salt, states = salt_of("chain", name), self.states
        block_s = 100 * max(state.stay_s for state in states.values())
        stays = {state: each.stay_s for state, each in states.items()}
        others = {state: each.next or dict.fromkeys(set(states) - {state}, 1.0) for state, each in states.items()}
        ways = {state: dict(sorted(weights.items())) for state, weights in others.items()}

        def stay_in(device: DeviceRandom, block: int, count: int, state: str, since_s: float, end_s: float) -> _Stay:
            chance = device.uniform(salt, (block << 32) + 2 * count + 1)
            length_s = max(1e-3, -math.log(chance) * stays[state])
            return _Stay(block, count, state, since_s, min(since_s + length_s, end_s))

        def value_at(device: DeviceRandom, time_s: float) -> float:
            stay: _Stay | None = device.memo.get(salt)
            if stay is None or not stay.since_s <= time_s < stay.until_s:
                phase = device.fraction(salt)
                block = math.floor(time_s / block_s + phase)
                begin_s, end_s = (block - phase) * block_s, (block + 1 - phase) * block_s
                if stay is None or stay.block != block or stay.since_s > time_s:
                    first = _pick(stays, device.uniform(salt, block << 32))
                    stay = stay_in(device, block, 0, first, begin_s, end_s)
                while time_s >= stay.until_s and stay.until_s < end_s:
                    count = stay.count + 1
                    state = _pick(ways[stay.state], device.uniform(salt, (block << 32) + 2 * count))
                    stay = stay_in(device, block, count, state, stay.until_s, end_s)
                device.memo[salt] = stay
            return states[stay.state].value

        return value_at


def _pick(weights: Mapping[str, float], chance: float) -> str:
    left = chance * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0:
            return name
    return list(weights)[-1]


class Battery(Signal):
    """A battery: it falls evenly from full to empty and is charged or changed; each device at its own point."""

    kind: Literal["battery"]
    full: float = Field(description="the reading of a full battery", default=100.0)
    empty: float = Field(description="the reading at which it is charged", default=5.0)
    life_s: Seconds = Field(description="from full to empty", default=90 * _DAY_S)
    charge_s: Delay = Field(description="from empty to full; 0: it is changed", default=0.0)
    digits: Annotated[int, Field(ge=0, le=9)] = Field(description="decimals of the sensor", default=3)

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        if self.empty >= self.full:
            raise ValueError(f"empty ({self.empty:g}) has to be below full ({self.full:g})")
        return self

    def make(self, name: str, folder: Path) -> ValueAt:
        salt, empty, life_s, charge_s = salt_of("battery", name), self.empty, self.life_s, self.charge_s
        whole, cycle_s = self.full - empty, life_s + charge_s

        def value_at(device: DeviceRandom, time_s: float) -> float:
            at_s = (time_s / cycle_s + device.fraction(salt)) % 1.0 * cycle_s
            left = 1.0 - at_s / life_s if at_s < life_s else (at_s - life_s) / charge_s if charge_s else 0.0
            return empty + left * whole

        return value_at


class PythonFunction(Signal):
    """What a function of a Python file returns. The file has all rights of whoever starts the run: `--allow-python`."""

    kind: Literal["python"]
    file: str = Field(description="Python file with the function", min_length=1)
    function: str = Field(
        description="its function of a device (`index`, `seed`) and the time in seconds since the epoch, and of "
        "nothing else: workers ask in any order. It returns a number, or NaN where there is no reading",
        default="value",
        min_length=1,
    )

    def make(self, name: str, folder: Path) -> ValueAt:
        """The function; it is tried once.

        Raises:
            ConfigurationError: the file or the function fails, or it returns no number.
        """
        path = folder / self.file
        function = _names_of(path).get(self.function)
        if not callable(function):
            raise ConfigurationError([f"has no function {self.function!r}"], str(path))

        def value_at(device: DeviceRandom, time_s: float) -> float:
            try:
                value = function(device, time_s)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    return float(value)
            except Exception as error:  # noqa: BLE001 - whatever the function does is reported in one line
                raise _fault_of(path, error) from None
            fault = f"{self.function}() returned {value!r:.60}, and has to return a number"
            raise ConfigurationError([fault], str(path))

        value_at(DeviceRandom.at(0, 0), time.time())
        return value_at


@lru_cache(maxsize=64)  # a file may have many functions, and a model many signals
def _names_of(path: Path) -> dict[str, Any]:
    try:
        return runpy.run_path(str(path), run_name="fleet_signals")
    except Exception as error:  # noqa: BLE001 - whatever the file does is reported in one line
        raise _fault_of(path, error) from None


def _fault_of(path: Path, error: Exception) -> ConfigurationError:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return ConfigurationError([f"{where}{type(error).__name__}: {str(error)[:200]}"], str(path))


# --- recordings -------------------------------------------------------------------------------------------------------

_EPOCH_MS_FROM: Final = 100_000_000_000
"""Numbers from here on are epoch milliseconds (1973 in milliseconds, the year 5138 in seconds)."""
_ROWS_MAX: Final = 2_000_000


class Replay(Signal):
    """Recorded values out of a CSV file: straight lines between them, again and again, each device at its own point."""

    kind: Literal["csv"]
    file: str = Field(description="CSV file with a line of column names", min_length=1)
    column: str = Field(
        description="the column with the values; an empty cell is left out. Columns of one file stay lines on a device",
        min_length=1,
    )
    time_column: str | None = Field(
        description="the column with the times: seconds, epoch milliseconds or RFC 3339; without it the lines are "
        "`every_s` apart",
        default=None,
    )
    every_s: Seconds | None = Field(description="distance of the lines where no column has times", default=None)

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if (self.time_column is None) == (self.every_s is None):
            raise ValueError("give either time_column or every_s")
        return self

    def make(self, name: str, folder: Path) -> ValueAt:
        path = folder / self.file
        try:
            times, values, round_s = _read_recording(path, self)
        except OSError as error:
            raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
        except UnicodeDecodeError:
            raise ConfigurationError(["is not UTF-8"], str(path)) from None
        except (csv.Error, ValueError) as error:
            raise ConfigurationError([str(error)], str(path)) from None
        # All columns of one file are at the same line on one device.
        salt = salt_of("csv", self.file)

        def value_at(device: DeviceRandom, time_s: float) -> float:
            at_s = (time_s + device.fraction(salt) * round_s) % round_s
            after = bisect_right(times, at_s)
            if after == 0:
                return values[0]
            # Behind the last line it is on the way back to the first.
            next_s, following = (times[after], values[after]) if after < len(times) else (round_s, values[0])
            part = (at_s - times[after - 1]) / (next_s - times[after - 1])
            return values[after - 1] + (following - values[after - 1]) * part

        return value_at


def _read_recording(path: Path, settings: Replay) -> tuple[Sequence[float], Sequence[float], float]:
    """Times in seconds since the first line, rising; as many values; and how long all lasts.

    Raises:
        OSError, csv.Error: it cannot be read.
        ValueError: it lacks a column, or has cells that are no numbers or times; the first such line is named.
    """
    column, clock = settings.column, settings.time_column
    at: list[float] = []  # the times of all lines, so that a gap in one column moves it against no other
    points: list[tuple[float, float]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        names = reader.fieldnames or ()
        if missing := [name for name in (column, clock) if name is not None and name not in names]:
            raise ValueError(f"has no column {missing[0]!r}; it has {', '.join(names) or 'none'}")
        for place, row in enumerate(reader):
            line, cell = reader.line_num, (row[column] or "").strip()
            if line > _ROWS_MAX:
                raise ValueError(f"has more than {_ROWS_MAX} lines; thin it out")
            at_s = place * (settings.every_s or 1.0) if clock is None else _time_of((row[clock] or "").strip())
            if at_s is None:
                raise ValueError(f"line {line}: {clock} {row[clock or '']!r:.40} is no time")
            if at and at_s <= at[-1]:
                raise ValueError(f"line {line}: {clock} does not rise; one file has one series, sorted by time")
            at.append(at_s)
            if cell:
                value = _number(cell)
                if value is None:
                    raise ValueError(f"line {line}: {column} {cell[:40]!r} is no number; leave the cell empty for none")
                points.append((at_s - at[0], value))
    if not points:
        raise ValueError(f"has no value in column {column!r}")
    spans = sorted(later - earlier for earlier, later in pairwise(at))
    last_s = spans[len(spans) // 2] if spans else settings.every_s or 1.0
    times, values = zip(*points, strict=True)
    return times, values, at[-1] - at[0] + last_s


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _time_of(text: str) -> float | None:
    value = _number(text)
    if value is not None:
        return value / 1000 if abs(value) >= _EPOCH_MS_FROM else value
    try:
        return parse_time(text)
    except InvalidMessage:
        return None


# --- all of them ------------------------------------------------------------------------------------------------------

AnySignal = Annotated[
    Battery | Constant | Diurnal | Markov | PythonFunction | RandomWalk | Replay, Field(discriminator="kind")
]
SignalMap = Annotated[dict[ReadingName, AnySignal], Field(min_length=1, max_length=100)]
"""Signals by reading name, as a scenario has them."""
_MAP: Final[TypeAdapter[SignalMap]] = TypeAdapter(SignalMap)


def build_signals(settings: Mapping[str, Signal], *, folder: Path) -> SignalSet:
    """The signals of one device model.

    Args:
        settings: by reading name.
        folder: relative paths start here.

    Raises:
        ConfigurationError: files cannot be used; every such fault, each with the reading it belongs to.
    """
    made: dict[str, tuple[Signal, ValueAt]] = {}
    faults: list[str] = []
    for name, each in settings.items():
        try:
            made[name] = each, each.make(name, folder)
        except ConfigurationError as error:
            faults += [f"{name}: {error.source}: {fault}" for fault in error.faults]
    if faults:
        raise ConfigurationError(faults, "signals")
    return SignalSet(made)


CLIMATE_SETTINGS: Final = _MAP.validate_python(
    {
        "temperature_celsius": {"kind": "random_walk", "start": 21.0, "step": 0.09},
        "humidity_percent": {"kind": "random_walk", "start": 45.0, "step": 0.16, "min": 0.0, "max": 100.0},
        "battery_percent": {"kind": "battery"},
        "signal_dbm": {"kind": "random_walk", "start": -67.0, "step": 0.35, "digits": 0},
    }
)
"""What a virtual climate node reads: the signals of a device by default."""
CLIMATE: Final = build_signals(CLIMATE_SETTINGS, folder=Path())


class SignalFaultsError(Exception):
    """Signals that cannot be made; ``faults`` has (field, issue) for each."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{field}: {issue}" for field, issue in faults))


def signals_of_json(wanted: Mapping[str, JsonObject]) -> SignalSet:
    """The signals of a device that a service plays, out of JSON.

    Raises:
        SignalFaultsError: every fault. Kinds that read a file are among them: whoever may call the service may not have
            it open files.
    """
    try:
        settings = _MAP.validate_python(dict(wanted))
    except ValidationError as error:
        raise SignalFaultsError(list_faults(error)) from None
    if files := [name for name, one in settings.items() if isinstance(one, Replay | PythonFunction)]:
        raise SignalFaultsError([(f"{name}.kind", "reads a file: give a kind that needs none") for name in files])
    return build_signals(settings, folder=Path())
