from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InvalidMessage
from agent.wire.times import parse_received_time, parse_time, to_rfc3339

# The years 1 to 9999.
MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)


@given(MS)
def test_a_time_survives_the_wire_to_the_millisecond(ms):
    text = to_rfc3339(ms / 1000)
    assert round(parse_time(text) * 1000) == ms
    assert to_rfc3339(parse_time(text)) == text
    assert len(text) == 24


@given(MS)
def test_epoch_milliseconds_and_their_digits_are_the_same_time(ms):
    assert parse_time(ms) == parse_time(str(ms)) == ms / 1000


@given(st.text(max_size=40))
def test_no_text_makes_it_raise_anything_else(text):
    for parse in (parse_time, parse_received_time):
        said = "time"
        try:
            parse(text)
        except InvalidMessage as error:
            said = str(error)
        assert "time" in said


@pytest.mark.parametrize(
    ("text", "epoch_s"),
    [
        ("2026-01-01T00:00:00.000Z", 1767225600.0),
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01t00:00:00z", 1767225600.0),
        ("2026-01-01 01:30:00+01:30", 1767225600.0),
        ("2025-12-31T19:00:00-05:00", 1767225600.0),
        ("2026-01-01T00:00:00.5Z", 1767225600.5),
        ("2026-01-01T00:00:00.123456789Z", 1767225600.123456),
        ("2016-12-31T23:59:60Z", 1483228800.0),
        ("1969-12-31T23:59:59.999Z", -0.001),
    ],
)
def test_rfc_3339_in_all_its_forms_is_read(text, epoch_s):
    assert parse_time(text) == pytest.approx(epoch_s, abs=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "now",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01T00:00:00+25:00",
        "٢٠٢٦-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:60Z",
        "2026-01-01T00:00:00Z\n",
        "99999999999999999",
        10**18,
        -(10**18),
        True,
        None,
        1.5,
    ],
)
def test_what_is_no_time_is_refused(value):
    with pytest.raises(InvalidMessage):
        parse_time(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, 253_402_300_800.0])
def test_a_number_outside_the_calendar_has_no_text(value):
    with pytest.raises(InvalidMessage):
        to_rfc3339(value)


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00",
        1767225600,
        1767225600.0,
        1767225600000,
        "1767225600",
        "1767225600000",
    ],
)
def test_other_servers_forms_of_a_time_are_read(value):
    assert parse_received_time(value) == 1767225600.0


@pytest.mark.parametrize("value", [None, True, [], {}, math.nan, math.inf, "soon"])
def test_what_is_no_time_in_an_answer_is_refused(value):
    with pytest.raises(InvalidMessage):
        parse_received_time(value)
