"""How sure a figure is: confidence intervals for percentiles and shares, so that runs are compared and not numbers.

The interval of a percentile is made of order statistics: how many of n values lie below the true percentile follows a
binomial distribution, whatever the values are distributed like (Conover, Practical Nonparametric Statistics, 3.2). The
interval of a share is Wilson's. Both take exchanges as independent of each other; those of one stall are not, so real
intervals are somewhat wider, and runs to be compared should be as long as a stall is rare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from simulator.fleet.metrics.histogram import Histogram

CONFIDENCE: Final = 0.95
_SPREADS: Final = 12
"""Standard deviations around the middle of a binomial distribution, beyond which a float sees nothing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and where the truth is, with the confidence that was asked for.

    Attributes:
        low, high: the bounds; infinite where there are too few values for one.
        value: the figure itself; NaN without values.
    """

    low: float
    value: float
    high: float

    def differs_from(self, other: Interval) -> bool:
        """The two do not overlap: more than chance, on the careful side. False without values."""
        return self.high < other.low or other.high < self.low


def percentile_interval(histogram: Histogram, percent: float, confidence: float = CONFIDENCE) -> Interval:
    """The interval of a percentile, in seconds.

    Args:
        histogram: what was measured.
        percent: 0 to 100.
        confidence: between 0 and 1.
    """
    value = histogram.percentile(percent)
    below, above = rank_interval(histogram.count, percent / 100, confidence)
    low = histogram.at_ranks((below,))[0] if below is not None else -math.inf
    high = histogram.at_ranks((above,))[0] if above is not None else math.inf
    return Interval(low, value, high)


def rank_interval(count: int, share: float, confidence: float = CONFIDENCE) -> tuple[int | None, int | None]:
    """The places (from 1) in a sorted log of ``count`` values that the true quantile lies between.

    Returns:
        The lower and the upper place, exact for the binomial distribution; None where even the outermost value is not
        sure enough to be a bound.
    """
    if not count or not 0 < share < 1:
        return None, None
    middle, spread = count * share, math.sqrt(count * share * (1 - share))
    first = max(0, math.floor(middle - _SPREADS * spread - _SPREADS))
    last = min(count, math.ceil(middle + _SPREADS * spread + _SPREADS))
    # pmf(k + 1) / pmf(k) = (n - k) / (k + 1) * p / (1 - p), added up as logarithms, since the ends are tiny.
    steps = np.arange(first, last, dtype=np.float64)
    logs = np.concatenate(([0.0], np.cumsum(np.log((count - steps) / (steps + 1) * (share / (1 - share))))))
    weights = np.exp(logs - logs.max())
    # at_most[i]: that no more than first + i values lie below the true quantile.
    at_most = np.cumsum(weights / weights.sum())
    tail = (1 - confidence) / 2
    below = first + int(np.searchsorted(at_most, tail, side="right"))
    above = first + int(np.searchsorted(at_most, 1 - tail)) + 1
    return (below if below >= 1 else None), (above if above <= count else None)


def share_interval(part: int, whole: int, confidence: float = CONFIDENCE) -> Interval:
    """The interval of a share, 0 to 1, such as of refused requests (Wilson's score interval)."""
    if not whole:
        return Interval(-math.inf, math.nan, math.inf)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = part / whole
    scale = 1 + z * z / whole
    middle = (share + z * z / (2 * whole)) / scale
    reach = z / scale * math.sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole))
    return Interval(max(0.0, middle - reach), share, min(1.0, middle + reach))
