"""Signals that jump: steps one after the other, and the states of a chain."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from simulator.fleet.signals.base import Individual, salt_of
from simulator.fleet.signals.chain import Chain, ChainState


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
        return self._values[self._chain.stay_at(device, time_s).state]
