"""Values one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from simulator.fleet.settings import Seconds, Section, key
from simulator.fleet.signals.base import Individual, Signal, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal


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


class Steps:
    """Values one after the other, from the beginning again after the last.

    Args:
        name: another one gives another chance on the same device.
        steps: (value, seconds) in their order.
        begin_s: when the first step begins; None: each device somewhere in the steps.
    """

    __slots__ = ("_begin_s", "_ends", "_round_s", "_salt", "_values")

    def __init__(self, name: str, steps: Sequence[tuple[float, float]], begin_s: float | None) -> None:
        self._salt = salt_of("steps", name)
        self._values = [value for value, _ in steps]
        self._ends = list(accumulate(length_s for _, length_s in steps))
        self._round_s = self._ends[-1]
        self._begin_s = begin_s

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        if self._begin_s is None:
            at_s = (time_s + device.fraction(self._salt) * self._round_s) % self._round_s
        else:
            at_s = (time_s - self._begin_s) % self._round_s
        return self._values[min(bisect_right(self._ends, at_s), len(self._values) - 1)]


@register_signal(StepsSettings)
def make_signal(name: str, settings: StepsSettings, context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    return Steps(name, [(step.value, step.for_s) for step in settings.steps], context.begin_s(settings.phase))
