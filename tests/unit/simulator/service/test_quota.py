from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.service.quota import Quota

MINUTE = 60_000


def test_a_window_is_a_calendar_minute_and_not_a_minute_since_the_first_request():
    quota = Quota(2)
    last_ms = 5 * MINUTE - 1
    assert [quota.count("k", last_ms).exceeded for _ in range(3)] == [False, False, True]
    assert quota.count("k", last_ms).reset_s == 1
    assert not quota.count("k", last_ms + 1).exceeded
    assert quota.count("k", last_ms + 1).reset_s == 60


def test_a_clock_that_is_set_back_begins_a_new_window():
    quota = Quota(1)
    assert not quota.count("k", 10 * MINUTE).exceeded
    assert not quota.count("k", 3 * MINUTE).exceeded


def test_only_the_present_minute_is_remembered():
    quota = Quota(1)
    for minute in range(100):
        quota.count(f"key-{minute}", minute * MINUTE)
    assert len(quota._counts) == 1


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, MINUTE)), max_size=60),
)
def test_no_key_gets_more_than_its_quota_in_any_minute(limit, steps):
    quota, now_ms, passed = Quota(limit), 0, {}
    for key, ahead_ms in steps:
        now_ms += ahead_ms
        state = quota.count(key, now_ms)
        counted = passed.setdefault((key, now_ms // MINUTE), [])
        counted.append(state.exceeded)
        assert 1 <= state.reset_s <= 60
    for counted in passed.values():
        assert counted == [False] * min(limit, len(counted)) + [True] * max(0, len(counted) - limit)
