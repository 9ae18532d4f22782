"""Conditions: what a phase waits for."""

from __future__ import annotations

import pytest

from simulator.fleet.scenario.conditions import ConditionError, parse_condition


@pytest.mark.parametrize(
    ("text", "gauges", "holds"),
    [
        ("online >= 99%", {"online": 990}, True),
        ("online >= 99%", {"online": 989}, False),
        ("online >= 99.5%", {"online": 995}, True),
        ("online==1_000", {"online": 1000}, True),
        ("open_commands == 0", {"open_commands": 0}, True),
        ("open_commands == 0", {}, False),
        ("online >= 99% and waiting_readings < 50", {"online": 1000, "waiting_readings": 49}, True),
        ("online >= 99% and waiting_readings < 50", {"online": 1000, "waiting_readings": 50}, False),
    ],
)
def test_a_condition_holds_or_not(text, gauges, holds):
    assert parse_condition(text).holds(gauges, devices=1000) is holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no condition"),
        ("online", "'online' is no condition; write it like"),
        ("onlin > 3", "did you mean 'online'?"),
        ("open_commands < 5%", "has no whole"),
        ("online > 101%", "more than all devices"),
        ("online > 3 or online < 2", "is no condition"),
    ],
)
def test_what_is_no_condition_is_told(text, said):
    with pytest.raises(ConditionError, match=".") as caught:
        parse_condition(text)
    assert said in str(caught.value)
