"""Chains of states with hashed lengths: the state of a device at any instant, computed without those before it.

A chain is cut into blocks of a hundred of its longest stays, or two thousand of any. In each block it begins in a state
that is drawn by how much of its time the chain spends there, and is lived through from there; so any instant costs at
most one block, and the next one after it costs nothing (the stay that was found is kept in the device's memo).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Final

from pydantic import Field

from simulator.fleet.signals.base import Individual, period_at, salt_of

_LONGEST_STAYS: Final = 100
_STAYS_MAX: Final = 2000
_ROUNDS: Final = 2_000
_SHORTEST_S: Final = 1e-3
STATES_MAX: Final = 32

StateName = Annotated[str, Field(min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True)
class ChainState:
    """One state of a Markov chain: how long it lasts, and what follows.

    Attributes:
        stay_s: how long the chain stays on average.
        fixed: exactly so long, else an exponential distribution.
        ways: weights of the next states; empty: to any other state alike.
    """

    stay_s: float
    fixed: bool = False
    ways: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateInterval:
    """One stay in a state: from ``since_s`` until before ``until_s``."""

    state: str
    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class _Found:
    """A stay, and where in the chain it is: the ``count``-th of its block."""

    block: int
    count: int
    stay: StateInterval


class Chain:
    """A semi-Markov chain in continuous time.

    Args:
        name: another one gives another chance on the same device.
        states: by name, at least two; the ways lead to states that there are.
    """

    __slots__ = ("_block_s", "_nexts", "_salt", "_shares", "_states")

    def __init__(self, name: str, states: Mapping[str, ChainState]) -> None:
        self._states = dict(states)
        self._salt = salt_of("chain", name)
        visits = _visits(self._states)
        mean_s = sum(visits[name] * state.stay_s for name, state in states.items())
        self._block_s = min(_LONGEST_STAYS * max(state.stay_s for state in states.values()), _STAYS_MAX * mean_s)
        self._nexts = {name: _weighted(_ways(name, self._states)) for name in self._states}
        self._shares = _weighted(time_shares(self._states))

    def interval_at(self, device: Individual, time_s: float) -> StateInterval:
        """The stay that ``time_s`` lies in."""
        found: _Found | None = device.memo.get(self._salt)
        if found is None or not found.stay.since_s <= time_s < found.stay.until_s:
            found = device.memo[self._salt] = self._find(device, time_s, found)
        return found.stay

    def _find(self, device: Individual, time_s: float, known: _Found | None) -> _Found:
        turn = period_at(time_s, self._block_s, device.fraction(self._salt))
        block, begin_s, end_s = turn.number, turn.begin_s, turn.end_s
        if known is not None and known.block == block and known.stay.since_s <= time_s:
            count, stay = known.count, known.stay
        else:
            count = 0
            state = _pick(self._shares, self._chance(device, block, 0))
            stay = StateInterval(state, begin_s, min(begin_s + self._length(device, state, block, 0), end_s))
        while time_s >= stay.until_s and stay.until_s < end_s:
            count += 1
            state = _pick(self._nexts[stay.state], self._chance(device, block, 2 * count))
            until_s = stay.until_s + self._length(device, state, block, count)
            stay = StateInterval(state, stay.until_s, min(until_s, end_s))
        return _Found(block, count, stay)

    def _length(self, device: Individual, state: str, block: int, count: int) -> float:
        described = self._states[state]
        if described.fixed:
            return described.stay_s
        chance = self._chance(device, block, 2 * count + 1)
        return max(_SHORTEST_S, -math.log(chance) * described.stay_s)

    def _chance(self, device: Individual, block: int, which: int) -> float:
        # Blocks of one device are apart by more numbers than a block has stays.
        return device.uniform(self._salt, (block << 32) + which)


Weighted = tuple[tuple[str, float], ...]
"""Names with the sums of their shares up to them; the last sum is 1."""


def time_shares(states: Mapping[str, ChainState]) -> dict[str, float]:
    """Which part of its time a chain spends in each state, in the long run."""
    visits = _visits(states)
    times = {name: visits[name] * state.stay_s for name, state in states.items()}
    whole_s = sum(times.values())
    return {name: time_s / whole_s for name, time_s in times.items()}


def _visits(states: Mapping[str, ChainState]) -> dict[str, float]:
    """Which part of its stays is in each state, in the long run."""
    visits = dict.fromkeys(states, 1.0 / len(states))
    ways = {name: _ways(name, states) for name in states}
    for _ in range(_ROUNDS):
        # Half of it stays: chains that go round and round would never settle otherwise.
        following = {name: share / 2 for name, share in visits.items()}
        for name, share in visits.items():
            whole = sum(ways[name].values())
            for other, weight in ways[name].items():
                following[other] += share / 2 * weight / whole
        settled = all(math.isclose(following[name], visits[name], rel_tol=1e-12, abs_tol=1e-15) for name in states)
        visits = following
        if settled:
            break
    return visits


def _ways(name: str, states: Mapping[str, ChainState]) -> Mapping[str, float]:
    return states[name].ways or {other: 1.0 for other in states if other != name}


def _weighted(weights: Mapping[str, float]) -> Weighted:
    names: Sequence[str] = list(weights)
    sums = list(accumulate(weights.values()))
    return tuple((name, total / sums[-1]) for name, total in zip(names, sums, strict=True))


def _pick(weighted: Weighted, chance: float) -> str:
    for name, total in weighted:
        if chance < total:
            return name
    return weighted[-1][0]


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
