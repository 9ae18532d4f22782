"""Signals: what a virtual device's sensors read, as a function of seed, device and time.

Nothing that decides a value is remembered between two calls: the same arguments give the same number, in whatever order
and in whichever process they are asked for. Time is seconds since the epoch.

Chance is BLAKE2b (RFC 7693) of seed, device, signal and a whole number. One digest holds 512 random bits, so a
signal takes many decisions out of one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol

_TWO_64: Final = float(1 << 64)
_KEY_BYTES: Final = 16
_SALT_BYTES: Final = 8
_LARGEST: Final = (1 << 64) - 1
_ONE_NUMBER: Final = struct.Struct("<Q").pack
_PAIR: Final = struct.Struct("<QQ")


READING: Final = "reading"
"""What the phase of a device's readings is hashed with."""


def device_key(seed: int, index: int) -> str:
    """What the phases of a device are hashed from: no id of the service's, which is another one in each run."""
    return f"{seed}/{index}"


class Individual:
    """One device as signals see it: where its chance comes from.

    It holds no state that decides anything: ``memo`` only saves work (a signal keeps there what it would find again).

    Args:
        seed: of the run.
        name: of the device; the same name has the same signals in every run with this seed.
        index: its place in the fleet, for formulas.
    """

    __slots__ = ("index", "key", "memo", "name", "number", "seed")

    def __init__(self, seed: int, name: str, index: int = 0) -> None:
        self.seed = seed
        self.name = name
        self.index = index
        self.key = blake2b(f"{seed}\x1f{name}".encode(), digest_size=_KEY_BYTES).digest()
        self.number = int.from_bytes(self.key[:8], "little")
        self.memo: dict[bytes, Any] = {}

    @classmethod
    def at(cls, seed: int, index: int) -> Individual:
        """The device with this index in a fleet: the same in every run, whichever id a service gives it."""
        return cls(seed, str(index), index)

    def fraction(self, salt: bytes) -> float:
        """A number in [0, 1) for this device and this signal; costs nearly nothing, one for each salt."""
        return (self.number ^ int.from_bytes(salt, "little")) / _TWO_64 % 1.0

    def uniform(self, salt: bytes, which: int) -> float:
        """A number in (0, 1) that depends on the device and the arguments alone; ``which`` is at least 0."""
        digest = blake2b(self.key + salt + _ONE_NUMBER(which & _LARGEST), digest_size=8).digest()
        return (int.from_bytes(digest, "little") + 0.5) / _TWO_64

    def normal(self, salt: bytes, which: int) -> float:
        """A number of the standard normal distribution (Box and Muller, 1958)."""
        digest = blake2b(self.key + salt + _ONE_NUMBER(which & _LARGEST), digest_size=16).digest()
        radius, angle = _PAIR.unpack(digest)
        return math.sqrt(-2.0 * math.log((radius + 1.0) / (_TWO_64 + 2.0))) * math.cos(math.tau * angle / _TWO_64)

    def bits(self, salt: bytes, first: int, second: int) -> int:
        """512 random bits that follow from the device, ``salt`` and two numbers, and from nothing else."""
        digest = blake2b(self.key + salt + _PAIR.pack(first & _LARGEST, second & _LARGEST)).digest()
        return int.from_bytes(digest, "little")


class Signal(Protocol):
    """One named reading over time."""

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        ...


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of time among equally long ones: ``begin_s <= time < end_s``, to the last binary digit."""

    number: int
    begin_s: float
    end_s: float


def period_at(time_s: float, length_s: float, phase: float = 0.0, origin_s: float = 0.0) -> Period:
    """The stretch that an instant lies in.

    Whoever waits until ``end_s`` and asks again gets the next one: a division alone would now and then give the same.

    Args:
        time_s: the instant.
        length_s: of a stretch.
        phase: how far stretch 0 has gone at ``origin_s``, as a part of it.
        origin_s: any time.
    """
    number = math.floor((time_s - origin_s) / length_s + phase)
    if time_s < origin_s + (number - phase) * length_s:
        number -= 1
    elif time_s >= origin_s + (number + 1 - phase) * length_s:
        number += 1
    return Period(number, origin_s + (number - phase) * length_s, origin_s + (number + 1 - phase) * length_s)


def salt_of(*parts: str) -> bytes:
    """A salt for hashes, so that each signal has random numbers of its own."""
    return blake2b("\x1f".join(parts).encode(), digest_size=_SALT_BYTES).digest()


def millisecond_of(time_s: float) -> int:
    """The time of a reading as the wire has it: in milliseconds."""
    return round(time_s * 1000)


@dataclass(frozen=True, slots=True)
class Shaped:
    """A signal within the sensor's bounds and decimals.

    Attributes:
        low, high: lower and higher values are given as these.
        digits: the sensor's decimals.
    """

    signal: Signal
    low: float = -math.inf
    high: float = math.inf
    digits: int = 2

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none. See :class:`Signal`."""
        return round(min(max(self.signal.value_at(device, time_s), self.low), self.high), self.digits)


class SignalSet(Mapping[str, Shaped]):
    """All signals of a device model, by reading name."""

    __slots__ = ("_rows", "_signals")

    def __init__(self, signals: Mapping[str, Shaped]) -> None:
        self._signals = dict(signals)
        self._rows = [(name, s.signal.value_at, s.low, s.high, s.digits) for name, s in self._signals.items()]

    def read(self, device: Individual, time_s: float) -> dict[str, float]:
        """Every reading of one device at one instant; those that have no finite value then are left out."""
        values: dict[str, float] = {}
        for name, value_at, low, high, digits in self._rows:
            value = value_at(device, time_s)
            if value - value != 0.0:  # infinite, or not a number
                continue
            if value < low:
                value = low
            elif value > high:
                value = high
            values[name] = round(value, digits)
        return values

    def __getitem__(self, name: str) -> Shaped:
        return self._signals[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._signals)

    def __len__(self) -> int:
        return len(self._signals)


def read_all(signals: Mapping[str, Signal], seed: int, device: str, time_s: float) -> dict[str, float]:
    """Every signal of one device at one instant: one ``sensor_data`` object.

    Who reads a device often keeps its :class:`Individual` and calls :meth:`SignalSet.read`.
    """
    individual = Individual(seed, device)
    if isinstance(signals, SignalSet):
        return signals.read(individual, time_s)
    return {name: signal.value_at(individual, time_s) for name, signal in signals.items()}
