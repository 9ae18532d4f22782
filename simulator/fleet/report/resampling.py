"""Intervals by a block bootstrap: how else the same run could have come out.

Answers that follow each other are alike: a slow second is slow for all of them, and often the next one is too. Whoever
takes each answer as a draw of its own gets intervals that are far too narrow. So blocks of seconds are drawn, with all
that happened in them, and percentiles are taken of the merged histograms of each drawing.

Phases and faults are no chance: the storm of a run is as long in every drawing. Blocks are drawn within each stretch
of time in which the same phase and the same faults were under way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.subjects import WAITED
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Second
from simulator.fleet.report.figures import waited_histograms
from simulator.fleet.report.formatting import ERRORS

DRAWINGS: Final = 1000
BLOCKS_MAX: Final = 200
BLOCKS_MIN: Final = 5
"""Fewer blocks say nothing about how they vary."""
_JUST_BELOW: Final = 1 - 1e-12
"""Sums of fractions are a little off; a rank that falls on a boundary belongs to what is below."""

Drawn = NDArray[np.float64]
"""One figure in each of the drawings."""

Stretch = tuple[str, ...]
"""What was under way: the phase and the faults."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some seconds that follow each other.

    Attributes:
        stretch: of what it is a part.
        seconds: how many.
        counts: by operation and outcome.
        response: encoded histogram, by operation.
    """

    stretch: Stretch
    seconds: int
    counts: Mapping[str, Mapping[OutcomeClass, int]]
    response: Mapping[str, str]


def blocks_of(seconds: Iterable[Second], stretch_of: Callable[[int], tuple[Stretch, int]]) -> list[Block]:
    """Seconds in blocks; one that is not full at the end of its stretch, or before a gap, is a shorter one.

    Args:
        seconds: in order.
        stretch_of: of a second, what it is a part of, and how many seconds the stretch has in all.
    """
    blocks: list[Block] = []
    waiting: list[Second] = []
    stretch, length_s = stretch_of(-1)[0], 0
    for second in seconds:
        here, size = stretch_of(second.second)
        is_next = not waiting or second.second == waiting[-1].second + 1
        if waiting and (here != stretch or len(waiting) == length_s or not is_next):
            blocks.append(_block(stretch, waiting))
            waiting = []
        stretch, length_s = here, block_length_s(size)
        waiting.append(second)
    return [*blocks, _block(stretch, waiting)] if waiting else blocks


def block_length_s(seconds: int) -> int:
    """Of the blocks of a stretch: the cube root of its length, the usual rule.

    Longer where there were more than 200 of them, shorter where there were fewer than five.
    """
    usual = max(1, math.ceil(round(math.cbrt(seconds), 9)), math.ceil(seconds / BLOCKS_MAX))
    return max(1, min(usual, seconds // BLOCKS_MIN))


class Drawings:
    """How often each block of a run is in each of the drawings.

    Args:
        blocks: of one run.
        seed: the same one gives the same drawings.
        count: how many drawings.
    """

    def __init__(self, blocks: Sequence[Block], seed: int, count: int = DRAWINGS) -> None:
        self.blocks = blocks
        self.seconds = np.array([block.seconds for block in blocks], np.float64)
        self.weights = np.zeros((count, len(blocks)))
        random = np.random.PCG64(seed)
        for stretch in dict.fromkeys(block.stretch for block in blocks):
            members = np.array([at for at, block in enumerate(blocks) if block.stretch == stretch])
            # Raw words and a remainder: the same drawings in every version of numpy, and no remainder is more likely
            # than another by more than one in 2**56.
            words = random.random_raw(count * len(members)).reshape(count, len(members))
            picked = (words % np.uint64(len(members))).astype(np.int64)
            drawn = np.stack([np.bincount(row, minlength=len(members)) for row in picked]).astype(np.float64)
            # Blocks may be of different lengths; the stretch is as long as it was all the same.
            seconds = self.seconds[members]
            self.weights[:, members] = drawn * (seconds.sum() / (drawn @ seconds))[:, np.newaxis]


class Sample:
    """One operation of one run, as it was and as it was drawn."""

    def __init__(self, drawings: Drawings, operation: str) -> None:
        self._blocks = drawings.blocks
        self._weights = drawings.weights
        self._seconds = drawings.seconds
        self._operation = operation

    @property
    def answers(self) -> int:
        """The histograms of answers, which times are made of."""
        counts = [block.counts.get(self._operation, {}) for block in self._blocks]
        return sum(count.get(kind, 0) for count in counts for kind in WAITED)

    def rate(self, kinds: Sequence[OutcomeClass]) -> tuple[float, Drawn]:
        """Exchanges of these outcomes per second: as it was, and drawn."""
        counted = self._counted(kinds)
        return counted.sum() / self._seconds.sum(), (self._weights @ counted) / (self._weights @ self._seconds)

    def error_share(self) -> tuple[float, Drawn]:
        """Errors of all exchanges but the limited ones, 0 to 1."""
        errors, every = self._counted(ERRORS), self._counted((OutcomeClass.OK, *ERRORS))
        drawn = (self._weights @ errors) / np.maximum(self._weights @ every, 1)
        return errors.sum() / max(every.sum(), 1), drawn

    def percentiles(self, percents: Sequence[float]) -> list[tuple[float, Drawn]]:
        """Percentiles of the response time, seconds: each as it was, and of each drawn sample."""
        counts, middles, whole = self._matrix()
        if not whole.count:
            return [(math.nan, np.full(len(self._weights), math.nan)) for _ in percents]
        cumulated = np.cumsum(counts, axis=1)
        some = self._weights @ cumulated[:, -1] > 0
        return [
            (value, np.where(some, middles[self._buckets_at(percent / 100, cumulated)], math.nan))
            for percent, value in zip(percents, whole.percentiles(percents), strict=True)
        ]

    def _buckets_at(self, share: float, cumulated: Drawn) -> NDArray[np.int64]:
        """The first bucket of each drawing up to which this share of its answers lies.

        By bisection of all drawings at once: a dozen columns are weighted instead of thousands.
        """
        wanted = share * (self._weights @ cumulated[:, -1]) * _JUST_BELOW
        low = np.zeros(len(wanted), np.int64)
        high = np.full(len(wanted), cumulated.shape[1] - 1)
        while np.any(low < high):
            middle = (low + high) // 2
            enough = np.einsum("db,bd->d", self._weights, cumulated[:, middle]) >= wanted
            high = np.where(enough, middle, high)
            low = np.where(enough, low, np.minimum(middle + 1, high))
        return low

    def _counted(self, kinds: Sequence[OutcomeClass]) -> Drawn:
        counts = [block.counts.get(self._operation, {}) for block in self._blocks]
        return np.array([sum(count.get(kind, 0) for kind in kinds) for count in counts], np.float64)

    def _matrix(self) -> tuple[Drawn, Drawn, Histogram]:
        """Counts by block and bucket, the buckets' middles, and all of it as one histogram."""
        histograms = [Histogram.decode(block.response.get(self._operation, "")) for block in self._blocks]
        whole = Histogram()
        for histogram in histograms:
            whole.add(histogram)
        filled = np.flatnonzero(whole.counts)
        counts = np.stack([histogram.counts[filled] for histogram in histograms]).astype(np.float64)
        return counts, np.array([middle for middle, _ in whole.buckets()]), whole


def _block(stretch: Stretch, seconds: Sequence[Second]) -> Block:
    counts: dict[str, dict[OutcomeClass, int]] = {}
    response: dict[str, Histogram] = {}
    for second in seconds:
        for name, classes in second.operations.items():
            for outcome, tally in classes.items():
                into = counts.setdefault(name, {})
                into[outcome] = into.get(outcome, 0) + tally.count
            for text in waited_histograms(classes):
                if name not in response:
                    response[name] = Histogram()
                response[name].add_encoded(text)
    return Block(stretch, len(seconds), counts, {name: histogram.encode() for name, histogram in response.items()})
