"""Readings under a short quota: nothing is lost silently, the first and the last always go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.thinning import MergeBy, ThinningMode, ThinningPolicy, Waiting, thin

MERGE = ThinningPolicy(ThinningMode.MERGE, window_s=60.0)
THIN = ThinningPolicy(ThinningMode.THIN, every=3)


def readings(*values: float, every_s: float = 10.0) -> list[Waiting]:
    return [Waiting(n, {"t": value}, 1000.0 + n * every_s) for n, value in enumerate(values)]


def test_keep_all_sends_every_reading_as_it_is():
    waiting = readings(1, 2, 3)
    thinned = thin(waiting, ThinningPolicy(ThinningMode.KEEP_ALL))
    assert [(record.keys, record.values, record.at_s) for record in thinned.records] == [
        ((each.key,), each.values, each.at_s) for each in waiting
    ]
    assert not thinned.left_out
    assert thinned.merged == 0


def test_readings_within_a_window_become_one_record_with_the_last_value_and_time():
    thinned = thin(readings(*range(8)), MERGE)
    assert [(record.keys, record.values["t"], record.at_s) for record in thinned.records] == [
        ((0, 1, 2, 3, 4, 5), 5, 1050.0),
        ((6, 7), 7, 1070.0),
    ]
    assert thinned.merged == 6


def test_a_name_that_the_last_reading_lacks_keeps_its_own_last_value():
    waiting = [Waiting(1, {"a": 1.0, "b": 5.0}, 0.0), Waiting(2, {"a": 2.0}, 1.0)]
    assert thin(waiting, MERGE).records[0].values == {"a": 2.0, "b": 5.0}


def test_the_mean_is_taken_of_each_name():
    policy = ThinningPolicy(ThinningMode.MERGE, window_s=60.0, merge_by=MergeBy.MEAN)
    waiting = [Waiting(1, {"a": 1.0, "b": 5.0}, 0.0), Waiting(2, {"a": 2.0}, 1.0)]
    assert thin(waiting, policy).records[0].values == {"a": 1.5, "b": 5.0}


def test_the_mean_of_huge_numbers_is_finite():
    policy = ThinningPolicy(ThinningMode.MERGE, window_s=60.0, merge_by=MergeBy.MEAN)
    assert thin(readings(1.7e308, 1.7e308), policy).records[0].values["t"] == pytest.approx(1.7e308)


def test_a_clock_that_was_set_back_parts_two_records():
    waiting = [Waiting(1, {"t": 1}, 1000.0), Waiting(2, {"t": 2}, 900.0), Waiting(3, {"t": 3}, 910.0)]
    assert [record.keys for record in thin(waiting, MERGE).records] == [(1,), (2, 3)]


def test_the_window_widens_until_each_device_can_send_one_record_in_it():
    assert MERGE.for_fleet(100, 2.0) == MERGE
    assert MERGE.for_fleet(600, 2.0).window_s == 300.0
    assert MERGE.for_fleet(600, None) == MERGE


def test_thinning_sends_every_nth_reading():
    thinned = thin(readings(*[5.0] * 9), THIN)
    assert [record.keys for record in thinned.records] == [(0,), (3,), (6,), (8,)]
    assert thinned.left_out == (1, 2, 4, 5, 7)


def test_thinning_sends_every_change():
    thinned = thin(readings(5, 5, 6, 6, 6, 5, 5), ThinningPolicy(ThinningMode.THIN, every=100))
    assert [record.keys for record in thinned.records] == [(0,), (2,), (5,), (6,)]


def test_a_change_is_measured_from_what_was_sent_so_a_slow_drift_is_seen():
    policy = ThinningPolicy(ThinningMode.THIN, every=100, deadband=1.0)
    thinned = thin(readings(0, 0.6, 1.2, 1.8, 2.4, 2.4), policy)
    assert [record.values["t"] for record in thinned.records] == [0, 1.2, 2.4, 2.4]


def test_a_new_name_is_a_change():
    waiting = [Waiting(1, {"a": 1}, 0), Waiting(2, {"a": 1, "b": 1}, 1), Waiting(3, {"a": 1, "b": 1}, 2)]
    assert not thin(waiting, THIN).left_out


def test_the_quota_is_short_when_a_reading_waits_for_too_long():
    assert MERGE.is_short(60.0)
    assert not MERGE.is_short(59.0)
    assert not ThinningPolicy(ThinningMode.KEEP_ALL).is_short(1e9)


WAITING = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), st.floats(-1e9, 1e9), min_size=1),
        st.floats(-100, 1000),
    ),
    max_size=40,
).map(lambda rows: [Waiting(n, values, at_s) for n, (values, at_s) in enumerate(rows)])
POLICIES = st.builds(
    ThinningPolicy,
    st.sampled_from(ThinningMode),
    window_s=st.floats(0.1, 2000),
    merge_by=st.sampled_from(MergeBy),
    every=st.integers(1, 10),
    deadband=st.floats(0, 1e9),
)


@given(WAITING, POLICIES)
def test_every_reading_is_in_exactly_one_record_or_counted_as_left_out(waiting, policy):
    thinned = thin(waiting, policy)
    keys = [key for record in thinned.records for key in record.keys]
    assert sorted([*keys, *thinned.left_out]) == [each.key for each in waiting]
    assert keys == sorted(keys)
    assert len(waiting) == len(thinned.records) + thinned.merged + len(thinned.left_out)


@given(WAITING.filter(bool), POLICIES)
def test_the_first_and_the_last_reading_are_never_left_out(waiting, policy):
    thinned = thin(waiting, policy)
    first, last = thinned.records[0], thinned.records[-1]
    assert first.keys[0] == waiting[0].key
    assert last.keys[-1] == waiting[-1].key
    assert last.at_s == waiting[-1].at_s
    for record in thinned.records:
        of_record = [each for each in waiting if each.key in record.keys]
        assert record.values.keys() == {name for each in of_record for name in each.values}
        assert record.at_s == of_record[-1].at_s
