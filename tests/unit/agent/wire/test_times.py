from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime, formatdate
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.errors import InvalidMessage
from agent.wire.encoding import parse_received_time, parse_time, to_rfc3339

T0 = 1767225600.0
"""2026-01-01T00:00:00Z."""
# The years 1 to 9999.
MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
SECONDS = st.integers(0, 4_102_444_799).map(lambda epoch_s: datetime.fromtimestamp(epoch_s, UTC))
"""1970 to 2099."""


@given(MS)
def test_a_time_survives_the_wire_to_the_millisecond(ms):
    text = to_rfc3339(ms / 1000)
    assert round(parse_time(text) * 1000) == ms
    assert parse_time(ms) == parse_time(str(ms)) == ms / 1000
    assert (to_rfc3339(parse_time(text)), len(text)) == (text, 24)


NO_TIMES = ["", "now", "2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:61Z", "٢٠٢٦-01-01T00:00:00Z"]
NO_TIMES += ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:60Z", "99999999999999999", 10**18, True, None]


@pytest.mark.parametrize("value", [*NO_TIMES, "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z\n", 1.5])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(InvalidMessage):
        parse_time(value)


@pytest.mark.parametrize(
    "value",
    [*NO_TIMES, [], {"a": 1}, math.nan, math.inf, "2026-01/01", "1 Foo 2026 00:00:00", "12:00", "x" * 100_000, 10**400],
)
def test_what_is_no_time_in_an_answer_is_refused(value):
    with pytest.raises(InvalidMessage):
        parse_received_time(value)


# --- every form of a time that servers write, made by other code than ours --------------------------------------------

IN_UTC = [
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dt%H:%M:%Sz",
    "%Y-%m-%d %H:%M:%S+00",
    "%Y-%m-%d %H:%M:%S+0000",
    "%Y-%m-%dT%H:%M:%S-00:00",
    "%Y-%m-%d %H:%M:%S UTC",
    "%Y-%m-%dT%H:%M:%S,000000000Z",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a, %d %b %Y %H:%M:%S +0000",
    " %Y-%m-%dT%H:%M:%SZ ",
]


@given(SECONDS, st.sampled_from(IN_UTC))
def test_a_time_in_any_form_is_read(at, form):
    assert parse_received_time(at.strftime(form)) == at.timestamp()


@given(SECONDS)
def test_a_time_as_the_standard_library_writes_it_is_read(at):
    epoch_s, local = at.timestamp(), at.astimezone(ZoneInfo("Europe/Paris"))
    for text in (at.isoformat(), local.isoformat(" "), format_datetime(local), formatdate(epoch_s, usegmt=True)):
        assert parse_received_time(text) == epoch_s
    assert parse_received_time(at.strftime("%Y-%m-%d %H:%M")) == at.replace(second=0).timestamp()
    assert parse_received_time(at.strftime("%Y-%m-%d")) == at.replace(hour=0, minute=0, second=0).timestamp()


@given(st.integers(315_532_800, 4_102_444_799), st.sampled_from([1, 1000]), st.booleans())
@example(253_402_300_799, 1000, False)
def test_the_unit_of_a_number_follows_from_its_size(epoch_s, units, as_text):
    value = epoch_s * units
    assert parse_received_time(str(value) if as_text else value) == epoch_s
    assert parse_received_time(f"{epoch_s}.25") == epoch_s + 0.25


@given(SECONDS, st.integers(-14 * 60, 14 * 60))
def test_a_time_without_a_zone_is_in_the_configured_one(at, offset_min):
    zone = timezone(timedelta(minutes=offset_min))
    local = at.astimezone(zone)
    assert parse_received_time(local.strftime("%Y-%m-%d %H:%M:%S"), zone) == at.timestamp()
    assert parse_received_time(local.isoformat(), UTC) == at.timestamp()
