from __future__ import annotations

import pytest

from agent.core.unreported import (
    LIMITS,
    FailureStreak,
    ReportFault,
    fault_of,
)
from agent.errors import (
    Conflict,
    Forbidden,
    InvalidMessage,
    NoPlaceForResults,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    StillRunning,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (NotFound(404, "command_not_found"), ReportFault.OVER),
        (Conflict(409, "command_canceled"), ReportFault.OVER),
        (NoPlaceForResults("none"), ReportFault.NOWHERE),
        (NotFound(404), ReportFault.NO_PLACE),
        (Forbidden(403), ReportFault.NO_PLACE),
        (Refused(405), ReportFault.NO_PLACE),
        (Refused(410), ReportFault.NO_PLACE),
        (ServerFault(501), ReportFault.NO_PLACE),
        (UnexpectedAnswer("a page", 404), ReportFault.NO_PLACE),
        (Refused(400), ReportFault.CONTENT),
        (Refused(413), ReportFault.CONTENT),
        (InvalidMessage("no"), ReportFault.CONTENT),
        (ServerFault(500), ReportFault.FAILING),
        (ServerFault(503), ReportFault.FAILING),
        (UnexpectedAnswer("a page", 200), ReportFault.FAILING),
        (UnexpectedAnswer("a redirect"), ReportFault.FAILING),
        (TransportError("reset"), ReportFault.NOT_NOW),
        (Unauthorized(401), ReportFault.NOT_NOW),
        (RateLimited(429), ReportFault.NOT_NOW),
        (StillRunning(409), ReportFault.NOT_NOW),
    ],
)
def test_what_an_error_says_about_a_result(error, fault):
    assert fault_of(error) is fault


@pytest.mark.parametrize("fault", list(LIMITS))
def test_enough_is_a_number_and_a_span(fault):
    limit = LIMITS[fault]
    tries = FailureStreak()
    for _ in range(limit.times):
        tries = tries.failed(100.0)
    assert not limit.span_s or not tries.are_enough(fault, 100.0 + limit.span_s - 1)
    assert tries.are_enough(fault, 100.0 + limit.span_s)
    assert not FailureStreak(limit.times - 1, 100.0).are_enough(fault, 1e9)
    assert not tries.are_enough(ReportFault.NOT_NOW, 1e9)
