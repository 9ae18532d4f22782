"""Durations in bounded memory: log-linear counts of three significant digits that merge by addition.

Each power of two is cut into 1,024 buckets of equal width, so a bucket is at most 1/1,024 of its values wide, and its
middle is within 0.05 % of whatever fell into it. A bucket's number is the top of the value's own bit pattern (exponent
and ten bits of the mantissa, IEEE 754), so counting is a shift. Counts are whole numbers: histograms added in any order
are the histogram of all values, to the last bit. A percentile is never made of other percentiles.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from agent.errors import InvalidMessage

SHORTEST_S: Final = 1e-6
"""Anything shorter counts as this long."""
LONGEST_S: Final = 3600.0
"""Anything longer counts as this long; ``max_s`` is exact."""

Counts = NDArray[np.int64]

_MANTISSA_BITS: Final = 10
_SHIFT: Final = 52 - _MANTISSA_BITS


def _pattern_of(value_s: float) -> int:
    pattern: int = struct.unpack("<q", struct.pack("<d", value_s))[0]
    return pattern >> _SHIFT


def _bucket_of(value_s: float) -> int:
    return min(max(_pattern_of(value_s) - _LOWEST, 0), BUCKETS - 1)


_LOWEST: Final = _pattern_of(SHORTEST_S)
BUCKETS: Final = _pattern_of(LONGEST_S) - _LOWEST + 1
_EDGES: Final[NDArray[np.float64]] = (np.arange(_LOWEST, _LOWEST + BUCKETS + 1, dtype=np.int64) << _SHIFT).view(
    np.float64
)
_MIDDLES: Final[NDArray[np.float64]] = (_EDGES[:-1] + _EDGES[1:]) / 2

_PREFIX: Final = "h2."
_HEAD: Final = struct.Struct("<Idd")


class Histogram:
    """Counts of durations between 1 µs and 1 h; 254 KiB, whatever was recorded."""

    __slots__ = ("_counts", "count", "max_s", "min_s")

    count: int
    """Values recorded."""
    min_s: float
    """The shortest, exactly; NaN without values."""
    max_s: float
    """The longest, exactly; NaN without values."""

    def __init__(self) -> None:
        self._counts: Counts = np.zeros(BUCKETS, np.int64)
        self.count = 0
        self.min_s = self.max_s = math.nan

    def record_many(self, values_s: Sequence[float] | NDArray[np.float64]) -> None:
        """Count each value of a sequence, or of an ``array('d')`` without a copy.

        Raises:
            ValueError: one of them is NaN or infinity; none was counted then.
        """
        values = np.ascontiguousarray(values_s, np.float64)
        if not len(values):
            return
        shortest, longest = float(values.min()), float(values.max())
        if not (math.isfinite(shortest) and math.isfinite(longest)):
            raise ValueError("durations are finite numbers of seconds, and one of these is not")
        buckets = (values.view(np.int64) >> _SHIFT) - _LOWEST
        # The pattern of a negative number is negative: it falls into the first bucket, and counts as 0.
        np.clip(buckets, 0, BUCKETS - 1, out=buckets)
        np.add.at(self._counts, buckets, 1)
        self._note(len(values), max(shortest, 0.0), max(longest, 0.0))

    def _note(self, count: int, shortest_s: float, longest_s: float) -> None:
        if self.count:
            self.min_s = min(self.min_s, shortest_s)
            self.max_s = max(self.max_s, longest_s)
        else:
            self.min_s, self.max_s = shortest_s, longest_s
        self.count += count

    def add(self, other: Histogram) -> None:
        """Take in what another one counted: afterwards this is the histogram of both logs together."""
        if other.count:
            self._counts += other._counts
            self._note(other.count, other.min_s, other.max_s)

    def add_encoded(self, text: str) -> None:
        """:meth:`add` of what :meth:`encode` wrote, without building the other one.

        Raises:
            InvalidMessage: not such a text.
        """
        buckets, counts, shortest_s, longest_s = unpacked(text)
        if len(buckets):
            self._counts[buckets] += counts
            self._note(int(counts.sum()), shortest_s, longest_s)

    def remove_encoded(self, text: str) -> None:
        """Take out what :meth:`add_encoded` took in; shortest and longest are known within 0.05 % from then on.

        Raises:
            InvalidMessage: not such a text.
        """
        buckets, counts, _, _ = unpacked(text)
        if len(buckets):
            self._counts[buckets] -= counts
            self.count -= int(counts.sum())
            filled = np.flatnonzero(self._counts)
            self.min_s, self.max_s = (float(_MIDDLES[filled[at]]) if self.count else math.nan for at in (0, -1))

    # --- what it says -------------------------------------------------------------------------------------------------

    def percentile(self, percent: float) -> float:
        """The smallest value that at least so many percent of all values do not exceed (nearest rank), within 0.05 %.

        Args:
            percent: 0 to 100, such as 99.9.

        Returns:
            Seconds; NaN without values.
        """
        return self.percentiles((percent,))[0]

    def percentiles(self, percents: Sequence[float]) -> tuple[float, ...]:
        """Several at the price of one: see :meth:`percentile`."""
        if not self.count:
            return (math.nan,) * len(percents)
        found = np.searchsorted(np.cumsum(self._counts), [rank_of(percent, self.count) for percent in percents])
        return tuple(min(max(float(_MIDDLES[bucket]), self.min_s), self.max_s) for bucket in found)

    def mean(self) -> float:
        """The mean in seconds, of the buckets' middles: within 0.05 %, and the same for every order of adding."""
        if not self.count:
            return math.nan
        return float(_MIDDLES @ self._counts) / self.count

    # --- as text ------------------------------------------------------------------------------------------------------

    def encode(self) -> str:
        """The histogram as ASCII text without spaces; empty without values.

        ``h2.`` and, in base64url, the zlib stream of: the number of filled buckets (u32), the shortest and longest
        value (f64, f64), the gap of each filled bucket to the one before (u16), and the count of each (i64);
        little-endian throughout.
        """
        if not self.count:
            return ""
        filled = np.flatnonzero(self._counts)
        gaps = np.diff(filled, prepend=0).astype("<u2")
        packed = _HEAD.pack(len(filled), self.min_s, self.max_s) + gaps.tobytes() + self._counts[filled].tobytes()
        return _PREFIX + base64.urlsafe_b64encode(zlib.compress(packed)).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Self:
        """The histogram that :meth:`encode` wrote.

        Raises:
            InvalidMessage: not such a text.
        """
        histogram = cls()
        histogram.add_encoded(text)
        return histogram


def merged(texts: Iterable[str]) -> Histogram:
    """The histogram of several encoded ones together."""
    histogram = Histogram()
    for text in texts:
        histogram.add_encoded(text)
    return histogram


def placed(text: str, bounds_s: Sequence[float]) -> tuple[Counts, float]:
    """The values of an encoded histogram sorted into wider buckets, for formats that have them fixed.

    Args:
        text: what :meth:`Histogram.encode` wrote.
        bounds_s: ascending upper bounds of the wider buckets, below :data:`LONGEST_S`.

    Returns:
        How many values lie up to each bound and above the one before, and last those above all bounds; and the sum of
        all values in seconds, within 0.05 %. Values in the same narrow bucket as a bound do not exceed it.

    Raises:
        InvalidMessage: not such a text.
    """
    buckets, counts, _, _ = unpacked(text)
    if not len(buckets):
        return np.zeros(len(bounds_s) + 1, np.int64), 0.0
    places = np.searchsorted([_bucket_of(bound) for bound in bounds_s], buckets)
    found = np.zeros(len(bounds_s) + 1, np.int64)
    np.add.at(found, places, counts)
    return found, float(_MIDDLES[buckets] @ counts)


def rank_of(percent: float, count: int) -> int:
    """The place of a percentile in a sorted log of so many values, from 1: the nearest rank, in whole numbers."""
    if not 0 <= percent <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
    return max(math.ceil(_exact(percent) * count / 100), 1)


@lru_cache(maxsize=256)
def _exact(percent: float) -> Fraction:
    """99.9 as 999/10, which no float is."""
    return Fraction(repr(float(percent)))


def unpacked(text: str) -> tuple[NDArray[np.int64], Counts, float, float]:
    """Filled buckets, their counts, the shortest and the longest value of an encoded histogram.

    Raises:
        InvalidMessage: not such a text.
    """
    nothing = np.zeros(0, np.int64)
    if not text:
        return nothing, nothing, math.nan, math.nan
    try:
        packed = zlib.decompress(base64.b64decode(text.removeprefix(_PREFIX), b"-_", validate=True))
        filled, shortest_s, longest_s = _HEAD.unpack_from(packed)
        gaps = np.frombuffer(packed, "<u2", filled, _HEAD.size)
        counts = np.frombuffer(packed, "<i8", filled, _HEAD.size + 2 * filled)
        buckets = np.cumsum(gaps.astype(np.int64))
        if not filled or int(buckets[-1]) >= BUCKETS:
            raise ValueError("its counts are none")
    except (ValueError, TypeError, binascii.Error, zlib.error, struct.error) as error:
        raise InvalidMessage(f"not an encoded histogram: {error}") from error
    return buckets, counts, shortest_s, longest_s
