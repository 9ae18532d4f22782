"""A random walk."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.fleet.signals.base import normal, uniform


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """A random walk (Brownian motion) around ``start``, which returns to it within ``span_s``.

    The walk of each span is a Brownian bridge built by halving the span and moving each midpoint (Lévy's
    construction), so any instant is reached in about ``log2(span_s / resolution_s)`` steps.

    Attributes:
        name: tells two walks of one device apart.
        start: the mean, and the value at each span's ends.
        step: standard deviation of the change within one second.
        span_s, resolution_s: length of a bridge; below the resolution the walk is a straight line.
        digits: the sensor's decimals.
    """

    name: str
    start: float
    step: float
    span_s: float = 3600.0
    resolution_s: float = 0.25
    digits: int = 2

    def value_at(self, seed: int, device: str, time_s: float) -> float:
        """See :class:`Signal`."""
        # A device begins somewhere on its own walk, not every device at the same corner of it.
        phase_s = uniform(seed, device, self.name, "phase") * self.span_s
        span, offset_s = divmod(time_s + phase_s, self.span_s)
        left_s, right_s, left, right = 0.0, self.span_s, 0.0, 0.0
        level = 0
        while right_s - left_s > self.resolution_s:
            middle_s = (left_s + right_s) / 2
            spread = self.step * math.sqrt((right_s - left_s) / 4)
            middle = (left + right) / 2 + spread * normal(seed, device, self.name, span, level, middle_s)
            if offset_s < middle_s:
                right_s, right = middle_s, middle
            else:
                left_s, left = middle_s, middle
            level += 1
        return round(self.start + left + (right - left) * (offset_s - left_s) / (right_s - left_s), self.digits)
