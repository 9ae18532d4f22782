"""Quota headers in the dialects that services speak."""

from __future__ import annotations

import pytest

from gateway.rate_limit import RateLimit, read_rate_limit
from simulator.service.quota import Quota


def test_our_service_is_read():
    headers = {name.decode(): value.decode() for name, value in Quota().count("key", 1000, now_ms=1_000)}
    assert read_rate_limit(headers) == RateLimit(999, 1000, 60.0, 59.0)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"ratelimit": '"default";r=50;t=30'}, RateLimit(50, None, None, 30.0)),
        (
            {"ratelimit": "default;r=0;t=7", "ratelimit-policy": "default;q=100;w=10"},
            RateLimit(0, 100, 10.0, 7.0),
        ),
        (
            {"ratelimit": '"day";r=90000;t=40000, "minute";r=20;t=30', "ratelimit-policy": '"minute";q=60;w=60'},
            RateLimit(20, 60, 60.0, 30.0),
        ),
        ({"ratelimit": '"a;b, c";r=5;t=1;pk=:eA==:'}, RateLimit(5, None, None, 1.0)),
        ({"ratelimit": "limit=100, remaining=50, reset=30"}, RateLimit(50, 100, None, 30.0)),
        (
            {"ratelimit": "limit=100, remaining=50, reset=30", "ratelimit-policy": "100;w=10"},
            RateLimit(50, 100, 10.0, 30.0),
        ),
        (
            {"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50", "ratelimit-reset": "30"},
            RateLimit(50, 100, None, 30.0),
        ),
        ({"x-ratelimit-limit": "60", "x-ratelimit-remaining": "59"}, RateLimit(59, 60, None, None)),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "12"}, RateLimit(3, None, None, 12.0)),
    ],
)
def test_dialects(headers, expected):
    assert read_rate_limit(headers) == expected


@pytest.mark.parametrize("reset", ["1767225642", "1767225642000"])
def test_a_reset_that_is_a_time_is_compared_with_the_answers_own_date(reset):
    headers = {"x-ratelimit-remaining": "3", "x-ratelimit-reset": reset}
    assert read_rate_limit({**headers, "date": "Thu, 01 Jan 2026 00:00:00 GMT"}) == RateLimit(3, None, None, 42.0)
    assert read_rate_limit({**headers, "date": "Thu, 01 Jan 2026 01:00:00 GMT"}) == RateLimit(3, None, None, 0.0)
    assert read_rate_limit(headers) == RateLimit(3)


@pytest.mark.parametrize(
    "headers",
    [{}, {"ratelimit": "soon"}, {"ratelimit": ";;=,"}, {"x-ratelimit-limit": "many"}, {"ratelimit-reset": "5"}],
)
def test_headers_that_tell_nothing_are_nothing(headers):
    assert read_rate_limit(headers) is None
