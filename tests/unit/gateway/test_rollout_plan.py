"""Waves, their order, and when a rollout stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ConfigurationError
from gateway.rollout.plan import Counts, Limits, in_order, in_waves, read_share, stop_reason, wave_sizes


@pytest.mark.parametrize(
    ("text", "devices", "sizes"),
    [
        ("1,5%,25%,all", 500, [1, 24, 100, 375]),
        ("1,5%,25%,all", 10, [1, 2, 7]),
        ("1,5%,25%,all", 1, [1]),
        ("10,5%,all", 20, [10, 10]),
        ("1000,all", 3, [3]),
        ("0.5 %, 100%", 500, [3, 497]),
        ("ALL", 7, [7]),
    ],
)
def test_each_entry_says_how_many_have_the_command_after_its_wave(text, devices, sizes):
    assert wave_sizes(text, devices) == sizes


@pytest.mark.parametrize(
    "text", ["", "1,5%", "0,all", "-1,all", "5,1,all", "50%,5%,all", "x,all", "101%,all", "1,,all"]
)
def test_waves_that_cannot_be_are_refused(text):
    with pytest.raises(ConfigurationError):
        wave_sizes(text, 100)


@given(st.sets(st.text(min_size=1), min_size=1), st.text())
def test_every_device_is_in_one_wave_and_its_place_hangs_on_the_name_alone(ids, name):
    ordered = in_order(name, ids)
    assert ordered == in_order(name, sorted(ids, reverse=True))
    waves = in_waves(ordered, wave_sizes("1,5%,25%,all", len(ids)))
    assert [device for wave in waves for device in wave] == ordered
    assert set(ordered) == ids


def test_the_first_device_is_another_one_in_the_next_rollout():
    ids = [f"d{number}" for number in range(100)]
    assert len({in_order(f"r{number}", ids)[0] for number in range(50)}) > 25


LIMITS = Limits(failed=0.05, silent=0.2, timeout_s=60.0)


@pytest.mark.parametrize(
    ("counts", "is_over", "said"),
    [
        (Counts(planned=19, failed=1), False, None),
        (Counts(planned=18, failed=2), False, "2 of the 20 device(s) of wave 3 failed (10 %), and 5 % may"),
        (Counts(failed=1), False, "1 of the 1 device(s) of wave 3 failed (100 %), and 5 % may"),
        (Counts(sent=20), False, None),
        (Counts(sent=4, succeeded=16), True, None),
        (Counts(sent=5, succeeded=15), True, "5 of the 20 device(s) of wave 3 gave no result (25 %), and 20 % may"),
        (Counts(silent=5, planned=15), False, "5 of the 20 device(s) of wave 3 gave no result (25 %), and 20 % may"),
        (Counts(silent=3, sent=2, succeeded=15), False, None),
    ],
)
def test_a_wave_beyond_a_limit_stops_it_at_once(counts, is_over, said):
    assert stop_reason(3, counts, LIMITS, is_over=is_over) == said


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), (" 12.5 % ", 0.125), ("0%", 0.0), ("100%", 1.0)])
def test_a_share_is_a_percentage(text, share):
    assert read_share(text) == share


@pytest.mark.parametrize("text", ["5", "0.05", "101%", "-1%", "%", "many"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(ConfigurationError):
        read_share(text)
