"""Confidence intervals: exact for the binomial distribution, and they cover the truth as often as they say."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.intervals import Interval, percentile_interval, rank_interval, share_interval


def histogram_of(values) -> Histogram:
    histogram = Histogram()
    histogram.record_many(values)
    return histogram


def at_most(places: int, count: int, share: float) -> float:
    """The binomial distribution, added up."""
    return math.fsum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(places + 1))


@given(st.integers(1, 200), st.sampled_from((0.5, 0.9, 0.95, 0.99)))
def test_the_places_hold_what_they_promise_and_are_the_closest_that_do(count, share):
    below, above = rank_interval(count, share)
    if below is None:
        assert at_most(0, count, share) > 0.025
    else:
        assert at_most(below - 1, count, share) <= 0.025 + 1e-9
        assert at_most(below, count, share) > 0.025 - 1e-9
    if above is None:
        assert at_most(count - 1, count, share) < 0.975
    else:
        assert at_most(above - 1, count, share) >= 0.975 - 1e-9
        assert above == 1 or at_most(above - 2, count, share) < 0.975 + 1e-9


def test_nineteen_of_twenty_intervals_cover_the_true_percentile():
    numbers = random.Random(3)
    truth = -math.log(1 - 0.9) / 10
    hits = 0
    for _ in range(300):
        interval = percentile_interval(histogram_of([numbers.expovariate(10) for _ in range(200)]), 90)
        hits += interval.low <= truth <= interval.high
    assert 275 <= hits <= 298


def test_a_hundred_million_values_take_no_longer_than_a_few():
    below, above = rank_interval(100_000_000, 0.5)
    assert below is not None
    assert above is not None
    assert 50_000_000 - below == pytest.approx(9_800, abs=2)
    assert above - 50_000_000 == pytest.approx(9_800, abs=3)


def test_too_few_values_have_no_upper_bound():
    interval = percentile_interval(histogram_of([0.1] * 100), 99.9)
    assert interval.high == math.inf
    assert interval.value == 0.1
    assert percentile_interval(Histogram(), 50).differs_from(interval) is False
    assert rank_interval(5, 0.0) == rank_interval(5, 1.0) == (None, None)


def test_two_runs_differ_only_when_their_intervals_do_not_overlap():
    quick, slow = (percentile_interval(histogram_of([at * n for n in range(1, 401)]), 95) for at in (0.001, 0.0013))
    assert quick.differs_from(slow)
    assert slow.differs_from(quick)
    assert not quick.differs_from(quick)


def test_a_share_is_never_surer_than_its_numbers():
    none = share_interval(0, 100)
    assert (none.low, none.value) == (0.0, 0.0)
    assert none.high == pytest.approx(0.037, abs=0.0005)
    half = share_interval(50, 100)
    assert (half.low, half.high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))
    assert not share_interval(0, 0).differs_from(Interval(0.1, 0.2, 0.3))
