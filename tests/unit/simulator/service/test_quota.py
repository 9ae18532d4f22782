"""The quota: so many requests of one key in each calendar minute."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.service.errors import ApiError
from simulator.service.quota import Quota

MINUTE = 60_000


def ask(quota: Quota, key: str, limit: int, now_ms: int) -> tuple[bool, int]:
    """Whether the request is one too many, and in how many seconds the minute ends."""
    try:
        headers = dict(quota.count(key, limit, now_ms))
    except ApiError as error:
        return error.error == "rate_limit_exceeded", int(error.headers["Retry-After"])
    return False, int(headers[b"ratelimit"].rpartition(b"=")[2])


def test_a_window_is_a_calendar_minute_and_not_a_minute_since_the_first_request():
    quota = Quota()
    last_ms = 5 * MINUTE - 1
    assert [ask(quota, "k", 2, last_ms) for _ in range(3)] == [(False, 1), (False, 1), (True, 1)]
    assert ask(quota, "k", 2, last_ms + 1) == (False, 60)


def test_a_clock_that_is_set_back_begins_a_new_window():
    quota = Quota()
    assert [ask(quota, "k", 1, 10 * MINUTE)[0], ask(quota, "k", 1, 3 * MINUTE)[0]] == [False, False]


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, MINUTE)), max_size=60),
)
def test_no_key_gets_more_than_its_quota_in_any_minute(limit, steps):
    quota, now_ms, passed = Quota(), 0, {}
    for key, ahead_ms in steps:
        now_ms += ahead_ms
        is_refused, reset_s = ask(quota, key, limit, now_ms)
        counted = passed.setdefault((key, now_ms // MINUTE), [])
        counted.append(is_refused)
        assert 1 <= reset_s <= 60
    for counted in passed.values():
        assert counted == [False] * min(limit, len(counted)) + [True] * max(0, len(counted) - limit)
