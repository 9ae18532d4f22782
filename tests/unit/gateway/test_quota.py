"""The quota of the one key: kept to, given back, and shared by what is more urgent."""

from __future__ import annotations

import httpx
import pytest

from agent.errors import RateLimited
from gateway.quota import AnnouncedQuota, Kind, Quota, read_rate_limit
from simulator.service.quota import Quota as ServiceQuota


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def spend(quota, kind, count=1):
    for _ in range(count):
        with quota.request(kind):
            pass


def announced(limit, left, reset_s):
    policy = f'"default";q={limit};w=60'
    return httpx.Headers({"ratelimit-policy": policy, "ratelimit": f'"default";r={left};t={reset_s}'})


def test_a_request_that_ends_by_any_error_is_under_way_no_longer(clock):
    quota = Quota(None, clock)
    for error in (RuntimeError, KeyboardInterrupt, ValueError):
        with pytest.raises(error), quota.request(Kind.READINGS):
            raise error
    with quota.request(Kind.READINGS):
        quota.answered(200, announced(100, 50, 30))
    assert quota.left == 50, "none of the three counts as under way"
    assert quota.wait_s(Kind.READINGS) == 0


@pytest.mark.parametrize(
    ("kind", "stops_at"), [(Kind.COMMANDS, 0), (Kind.RESULTS, 5), (Kind.READINGS, 20), (Kind.POLLS, 50)]
)
def test_a_part_of_the_window_is_kept_for_what_is_more_urgent(clock, kind, stops_at):
    quota = Quota(None, clock)
    with quota.request(kind):
        quota.answered(200, announced(100, 60, 30))
    spend(quota, kind, 60 - stops_at)
    with pytest.raises(RateLimited) as caught, quota.request(kind):
        pass
    assert caught.value.retry_after_s == pytest.approx(30)
    clock.now_s = 30.0  # a new window
    assert quota.wait_s(kind) == 0


def test_a_configured_quota_is_a_bucket_that_fills_evenly(clock):
    quota = Quota(60, clock)
    spend(quota, Kind.COMMANDS, 60)
    assert quota.wait_s(Kind.COMMANDS) == pytest.approx(1.0)
    clock.now_s = 1.0
    spend(quota, Kind.COMMANDS)
    assert quota.left == 0
    clock.now_s = 1_000.0
    spend(quota, Kind.READINGS, 48)
    assert quota.wait_s(Kind.READINGS) > 0
    assert quota.wait_s(Kind.RESULTS) == 0


# --- what the headers say ---------------------------------------------------------------------------------------------


def test_our_service_is_read():
    headers = {name.decode(): value.decode() for name, value in ServiceQuota().count("key", 1000, now_ms=1_000)}
    assert read_rate_limit(headers) == AnnouncedQuota(999, 1000, 59.0)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"ratelimit": '"default";r=50;t=30'}, AnnouncedQuota(50, None, 30.0)),
        (
            {"ratelimit": "default;r=0;t=7", "ratelimit-policy": "default;q=100;w=10"},
            AnnouncedQuota(0, 100, 7.0),
        ),
        (
            {"ratelimit": '"day";r=90000;t=40000, "minute";r=20;t=30', "ratelimit-policy": '"minute";q=60;w=60'},
            AnnouncedQuota(20, 60, 30.0),
        ),
        ({"ratelimit": '"a;b, c";r=5;t=1;pk=:eA==:'}, AnnouncedQuota(5, None, 1.0)),
        ({"ratelimit": "limit=100, remaining=50, reset=30"}, AnnouncedQuota(50, 100, 30.0)),
        (
            {"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50", "ratelimit-reset": "30"},
            AnnouncedQuota(50, 100, 30.0),
        ),
        ({"x-ratelimit-limit": "60", "x-ratelimit-remaining": "59"}, AnnouncedQuota(59, 60, None)),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "12"}, AnnouncedQuota(3, None, 12.0)),
        *(({"ratelimit": odd}, None) for odd in ("soon", ";;=,")),
        ({"x-ratelimit-limit": "many", "ratelimit-reset": "5"}, None),
    ],
)
def test_dialects(headers, expected):
    assert read_rate_limit(headers) == expected


@pytest.mark.parametrize("reset", ["1767225642", "1767225642000"])
def test_a_reset_that_is_a_time_is_compared_with_the_answers_own_date(reset):
    headers = {"x-ratelimit-remaining": "3", "x-ratelimit-reset": reset}
    assert read_rate_limit({**headers, "date": "Thu, 01 Jan 2026 00:00:00 GMT"}) == AnnouncedQuota(3, None, 42.0)
    assert read_rate_limit({**headers, "date": "Thu, 01 Jan 2026 01:00:00 GMT"}) == AnnouncedQuota(3, None, 0.0)
    assert read_rate_limit(headers) == AnnouncedQuota(3)
