"""Histograms: the error bound, merging to the last bit, and the text that they travel as."""

from __future__ import annotations

import base64
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import InvalidMessage
from simulator.fleet.metrics.histogram import LONGEST_S, SHORTEST_S, Histogram, merged, rank_of

durations = st.floats(SHORTEST_S, LONGEST_S)
logs = st.lists(durations, max_size=60)
percents = st.one_of(st.sampled_from((0.0, 50.0, 95.0, 99.0, 99.9, 99.99, 100.0)), st.floats(0, 100))


def histogram_of(values) -> Histogram:
    histogram = Histogram()
    histogram.record_many(values)
    return histogram


@given(st.lists(durations, min_size=1, max_size=60), percents)
def test_a_percentile_is_within_a_thousandth_of_the_sorted_log(log, percent):
    truth = sorted(log)[rank_of(percent, len(log)) - 1]
    assert histogram_of(log).percentile(percent) == pytest.approx(truth, rel=0.0005)


@given(st.lists(logs, max_size=6), st.randoms())
def test_histograms_added_in_any_order_are_the_histogram_of_all_values(shards, random):
    one = histogram_of([value for shard in shards for value in shard])
    parts = [histogram_of(shard) for shard in shards]
    random.shuffle(parts)
    together = Histogram()
    for part in parts:
        together.add(part)
    assert together.encode() == merged([part.encode() for part in parts]).encode() == one.encode()
    assert together.percentiles((50, 99.9)) == pytest.approx(one.percentiles((50, 99.9)), rel=0, nan_ok=True)


@given(logs)
def test_a_text_is_read_back_as_the_same(log):
    histogram = histogram_of(log)
    text = histogram.encode()
    assert Histogram.decode(text).encode() == text
    assert Histogram.decode(text).percentiles((0, 50, 100)) == pytest.approx(
        histogram.percentiles((0, 50, 100)), rel=0, nan_ok=True
    )
    assert text.isascii()
    assert " " not in text


@settings(max_examples=30)
@given(st.text(max_size=40) | st.binary(max_size=80).map(lambda raw: "h2." + base64.urlsafe_b64encode(raw).decode()))
def test_any_other_text_is_refused_in_one_line(text):
    if text == "":
        return
    with pytest.raises(InvalidMessage, match=r"^not an encoded histogram: [^\n]+$"):
        Histogram.decode(text)


def test_without_values_nothing_is_claimed():
    empty = Histogram()
    assert all(math.isnan(value) for value in (empty.percentile(99), empty.mean(), empty.min_s, empty.max_s))
    assert (empty.count, empty.encode()) == (0, "")
    empty.add_encoded(histogram_of([1.0]).encode())
    empty.add_encoded(Histogram().encode())
    assert (empty.min_s, empty.max_s, empty.percentile(0), empty.percentile(100)) == (1.0, 1.0, 1.0, 1.0)


def test_shortest_and_longest_are_exact_and_beyond_the_range_bounded():
    histogram = histogram_of([0.0, -0.5, 1e-9, 7200.0, 0.1234567])
    assert (histogram.min_s, histogram.max_s, histogram.count) == (0.0, 7200.0, 5)
    assert histogram.percentile(99) == pytest.approx(LONGEST_S, rel=0.001)
    assert histogram.percentile(1) <= SHORTEST_S * 1.001


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_of_seconds_is_refused_and_nothing_counted(value):
    histogram = Histogram()
    with pytest.raises(ValueError, match="finite"):
        histogram.record_many([1.0, value])
    assert (histogram.count, histogram.encode()) == (0, "")
