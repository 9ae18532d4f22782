"""A random walk."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from math import floor
from typing import Final, Literal

from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual, Signal, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal

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
        span = floor(turns)
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


@register_signal(RandomWalkSettings)
def make_signal(name: str, settings: RandomWalkSettings, _context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    spread = settings.spread
    return RandomWalk(name, settings.start, settings.step, settings.span_s, settings.resolution_s, spread=spread)
