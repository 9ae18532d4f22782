"""What a virtual device's sensors read, as a function of seed, device and time: seven kinds of signals.

A value depends on no earlier call: the same arguments give the same number, in whatever order and in whichever process
they are asked for. Time is seconds since the epoch. Chance is BLAKE2b (RFC 7693) of seed,
device, signal and a whole number.

A new kind is one more subclass of :class:`Signal`, and nothing else: its fields are the keys in a scenario, and
``make`` returns the function of device and time.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.encoding import parse_time
from agent.wire.models import JsonObject
from simulator.fleet.settings import Delay, ReadingName, Seconds, Section, kinds_of, one_of

_TWO_64: Final = float(1 << 64)
_MASK_64: Final = (1 << 64) - 1
_NUMBER: Final = struct.Struct("<Q").pack
_PAIR: Final = struct.Struct("<QQ")
_SPAN: Final = struct.Struct("<q").pack
_DAY_S: Final = 86_400.0


# --- chance -----------------------------------------------------------------------------------------------------------


def salt_of(*parts: str) -> bytes:
    """A salt, which gives each use of chance its own numbers."""
    return blake2b("\x1f".join(parts).encode(), digest_size=8).digest()


class DeviceRandom:
    """The random numbers of one device; the same in every run with this seed, whatever id the service gives it.

    ``memo`` is a cache of signals; no value depends on it.

    Args:
        seed: of the run.
        index: of the device in the fleet; a name where there is no fleet.
    """

    __slots__ = ("index", "key", "memo", "number", "seed")

    def __init__(self, seed: int, index: int | str) -> None:
        self.seed = seed
        self.index = index
        self.key = blake2b(f"{seed}\x1f{index}".encode(), digest_size=16).digest()
        self.number = int.from_bytes(self.key[:8], "little")
        self.memo: dict[bytes, Any] = {}

    def fraction(self, salt: bytes) -> float:
        """A number in [0, 1) for this device and salt; cheap, but those of two salts are not independent."""
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
    """The base of all kinds.

    Attributes:
        reads_file: it opens a file in the scenario's folder.
    """

    reads_file: ClassVar[bool] = False

    kind: str
    min: float | None = Field(description="lower values are given as this one", default=None)
    max: float | None = Field(description="higher values are given as this one", default=None)
    digits: Annotated[int, Field(ge=0, le=9)] = Field(description="decimals of the sensor", default=2)
    noise: float = Field(description="standard deviation of what each reading adds", ge=0, default=0.0)
    spread: float = Field(description="standard deviation of what each device adds", ge=0, default=0.0)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min:g}) is above max ({self.max:g}): swap them")
        return self

    @abstractmethod
    def make(self, name: str, folder: Path) -> ValueAt:
        """The function of device and time for the reading of this name.

        Args:
            name: of the reading.
            folder: relative paths start here.

        Raises:
            ConfigurationError: a file cannot be used.
        """

    def varied(self, name: str, value_at: ValueAt) -> ValueAt:
        """The function with noise and spread added, if any."""
        noise, spread = self.noise, self.spread
        noise_salt, spread_salt = salt_of("noise", name), salt_of("spread", name)

        def varied(device: DeviceRandom, time_s: float) -> float:
            value = value_at(device, time_s)
            if noise:
                value += noise * device.normal(noise_salt, round(time_s * 1000))
            return value + spread * device.normal(spread_salt, 0) if spread else value

        return varied if noise or spread else value_at


@dataclass(frozen=True, slots=True)
class SignalSet:
    """All signals of a device model: by reading name the function, the least, the most, and the decimals."""

    rows: Mapping[str, tuple[ValueAt, float, float, int]]

    def read(self, device: DeviceRandom, time_s: float) -> dict[str, float]:
        """Every reading of one device at one instant; those that have no finite value then are left out."""
        values: dict[str, float] = {}
        for name, (value_at, low, high, digits) in self.rows.items():
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

    def make(self, name: str, folder: Path) -> ValueAt:
        mean, amplitude, peak = self.mean, self.amplitude, self.peak_hour / 24
        return lambda _device, time_s: mean + amplitude * math.cos(math.tau * (time_s / _DAY_S - peak))


_STEPS: Final = 512
"""Bits of a digest: so many steps up or down of the walk of one span."""
_FINE: Final = 64
"""Of the smaller walk within each of these steps."""
_GOLDEN: Final = 0x9E3779B97F4A7C15


class RandomWalk(Signal):
    """A random walk (Brownian motion) that comes back to ``start`` once in ``span_s``."""

    kind: Literal["random_walk"]
    start: float = Field(description="what the walk comes back to")
    step: float = Field(description="standard deviation of the change within one second", ge=0)
    span_s: Seconds = Field(description="how long it may stray", default=3600.0)

    def make(self, name: str, folder: Path) -> ValueAt:
        """Each span is a bridge of 512 steps up or down, one for each bit of a digest; within each step lies a bridge
        of 64 smaller ones, whose bits are the middle of the digest times a number of their own.
        """
        salt = salt_of("random_walk", name)
        number, start, span_s = int.from_bytes(salt, "little"), self.start, self.span_s
        height = self.step * math.sqrt(span_s / _STEPS)
        fine_height = height / math.sqrt(_FINE)

        def value_at(device: DeviceRandom, time_s: float) -> float:
            # A device begins somewhere on its own walk, not every device at the same corner of it.
            turns = time_s / span_s + (device.number ^ number) / _TWO_64
            span = math.floor(turns)
            at = (turns - span) * _STEPS
            bits = int.from_bytes(blake2b(device.key + salt + _SPAN(span)).digest(), "little")
            fine_bits = bits * (int(at) * _GOLDEN | 1) >> (_STEPS // 2) & _MASK_64
            fine = _bridge(fine_bits, _FINE, at % 1.0 * _FINE)
            return start + height * _bridge(bits, _STEPS, at) + fine_height * fine

        return value_at


def _bridge(bits: int, steps: int, at: float) -> float:
    """The height of a walk after ``at`` of its steps, one up or down for each bit, tilted so that it ends at 0."""
    step = int(at)
    risen = 2.0 * (bits >> (steps - step)).bit_count() - step
    risen += at - step if bits >> (steps - 1 - step) & 1 else step - at
    return risen - at * (bits.bit_count() * 2 / steps - 1.0)


class MarkovState(Section):
    """One state of a chain."""

    value: float = Field(description="what the reading shows in this state")
    stay_s: Seconds = Field(description="how long the chain stays on average (exponentially distributed)")
    next: dict[str, Annotated[float, Field(gt=0)]] = Field(
        description="where it goes from here: weights; without it, to any other state alike", default_factory=dict
    )


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
        return self

    def make(self, name: str, folder: Path) -> ValueAt:
        """The chain is cut into blocks of a hundred of its longest stays. Each starts in a state drawn by how long
        states last, and is walked from its begin: a value costs at most one block, and a later one continues there.
        """
        salt, states = salt_of("chain", name), self.states
        block_s = 100 * max(state.stay_s for state in states.values())
        lasting = {state: each.stay_s for state, each in states.items()}
        others = {state: each.next or dict.fromkeys(set(states) - {state}, 1.0) for state, each in states.items()}
        ways = {state: dict(sorted(weights.items())) for state, weights in others.items()}

        def stays(device: DeviceRandom, block: int) -> Iterator[tuple[float, str]]:
            """The endless series of stays from a block's begin on: (end, state)."""
            until_s, draw = (block - device.fraction(salt)) * block_s, block << 32
            state = _pick(lasting, device.uniform(salt, draw))
            while True:
                until_s -= math.log(device.uniform(salt, draw + 1)) * lasting[state]
                yield until_s, state
                draw += 2
                state = _pick(ways[state], device.uniform(salt, draw))

        def value_at(device: DeviceRandom, time_s: float) -> float:
            block = math.floor(time_s / block_s + device.fraction(salt))
            known, asked_s, walk, until_s, state = device.memo.get(salt) or (None, 0.0, iter(()), 0.0, "")
            if block != known or time_s < asked_s:
                walk = stays(device, block)
                until_s, state = next(walk)
            while until_s <= time_s:
                until_s, state = next(walk)
            device.memo[salt] = block, time_s, walk, until_s, state
            return states[state].value

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
    """The result of a function in a Python file, which runs with the user's rights: needs `--allow-python`."""

    reads_file = True
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

        value_at(DeviceRandom(0, 0), time.time())
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


class Replay(Signal):
    """Recorded values from a CSV file, interpolated and repeated, each device at its own point."""

    reads_file = True
    kind: Literal["csv"]
    file: str = Field(description="CSV file with a line of column names", min_length=1)
    column: str = Field(
        description="the column with the values; an empty cell is left out. Columns of one file stay lines on a device",
        min_length=1,
    )
    time_column: str | None = Field(
        description="the column with the times: seconds or RFC 3339; without it the lines are `every_s` apart",
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
            times, values = _read_recording(path, self)
        except OSError as error:
            raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
        except (csv.Error, ValueError) as error:
            raise ConfigurationError([str(error)], str(path)) from None
        # All columns of one file are at the same line on one device.
        salt, round_s = salt_of("csv", self.file), times[-1]

        def value_at(device: DeviceRandom, time_s: float) -> float:
            at_s = (time_s + device.fraction(salt) * round_s) % round_s
            after = bisect_right(times, at_s)
            if after == 0:
                return values[0]
            part = (at_s - times[after - 1]) / (times[after] - times[after - 1])
            return values[after - 1] + (values[after] - values[after - 1]) * part

        return value_at


def _read_recording(path: Path, settings: Replay) -> tuple[Sequence[float], Sequence[float]]:
    """Times in seconds since the first line, rising, and as many values; at the end the way back to the first value.

    Raises:
        OSError, csv.Error: it cannot be read.
        ValueError: it lacks a column, or has cells that are no numbers or times; the first such line is named.
    """
    column, clock, every_s = settings.column, settings.time_column, settings.every_s or 1.0
    at: list[float] = []  # the times of all lines, so that a gap in one column moves it against no other
    points: list[tuple[float, float]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        names = reader.fieldnames or ()
        if missing := [name for name in (column, clock) if name is not None and name not in names]:
            raise ValueError(f"has no column {missing[0]!r}; it has {', '.join(names) or 'none'}")
        for place, row in enumerate(reader):
            line = f"line {reader.line_num}"
            at_s = place * every_s if clock is None else _read_cell(row, clock, line, _time_of, "time")
            if at and not at_s > at[-1]:
                raise ValueError(f"{line}: {clock} does not rise; one file has one series, sorted by time")
            at.append(at_s)
            if (row[column] or "").strip():
                value = _read_cell(row, column, line, float, "number; leave the cell empty for none")
                points.append((at_s - at[0], value))
    if not points:
        raise ValueError(f"has no value in column {column!r}")
    back_s = at[-1] - at[-2] if len(at) > 1 else every_s
    times, values = zip(*points, (at[-1] - at[0] + back_s, points[0][1]), strict=True)
    return times, values


def _read_cell(row: Mapping[str, str | None], name: str, line: str, read: Callable[[str], float], what: str) -> float:
    text = (row[name] or "").strip()
    try:
        return read(text)
    except (ValueError, InvalidMessage):
        raise ValueError(f"{line}: {name} {text[:40]!r} is no {what}") from None


def _time_of(text: str) -> float:
    """Seconds, of a number of them or an RFC 3339 time."""
    try:
        return float(text)
    except ValueError:
        return parse_time(text)


# --- all of them ------------------------------------------------------------------------------------------------------


def _map_of(kinds: Iterable[type[Signal]]) -> Any:
    return Annotated[dict[ReadingName, one_of(kinds)], Field(min_length=1, max_length=100)]  # type: ignore[misc]  # made at run time


if TYPE_CHECKING:
    SignalMap = dict[ReadingName, Signal]
else:
    SignalMap = _map_of(kinds_of(Signal))
    """Signals by reading name, as a scenario has them."""
_WITHOUT_FILES: Final = TypeAdapter(_map_of(kind for kind in kinds_of(Signal) if not kind.reads_file))  # type: ignore[type-abstract]


def build_signals(settings: Mapping[str, Signal], *, folder: Path) -> SignalSet:
    """The signals of one device model.

    Args:
        settings: by reading name.
        folder: relative paths start here.

    Raises:
        ConfigurationError: files cannot be used; every such fault, each with the reading it belongs to.
    """
    rows: dict[str, tuple[ValueAt, float, float, int]] = {}
    faults: list[str] = []
    for name, each in settings.items():
        try:
            value_at = each.varied(name, each.make(name, folder))
        except ConfigurationError as error:
            faults += [f"{name}: {error.source}: {fault}" for fault in error.faults]
            continue
        low, high = -math.inf if each.min is None else each.min, math.inf if each.max is None else each.max
        rows[name] = value_at, low, high, each.digits
    if faults:
        raise ConfigurationError(faults, "signals")
    return SignalSet(rows)


CLIMATE_SETTINGS: Final = _WITHOUT_FILES.validate_python(
    {
        "temperature_celsius": {"kind": "random_walk", "start": 21.0, "step": 0.09},
        "humidity_percent": {"kind": "random_walk", "start": 45.0, "step": 0.16, "min": 0.0, "max": 100.0},
        "battery_percent": {"kind": "battery"},
        "signal_dbm": {"kind": "random_walk", "start": -67.0, "step": 0.35, "digits": 0},
    }
)
"""What a virtual climate node reads: the signals of a device by default."""
CLIMATE: Final = build_signals(CLIMATE_SETTINGS, folder=Path())


def signals_of_json(wanted: Mapping[str, JsonObject]) -> SignalSet:
    """The signals of a device that a service plays: of kinds that read no file, which callers must not open.

    Raises:
        ValidationError: what is no such signal; every fault.
    """
    return build_signals(_WITHOUT_FILES.validate_python(dict(wanted)), folder=Path())
