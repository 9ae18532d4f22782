"""The simulation behind docs/scale.md: the figures that the documents promise, and what is drawn of them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from benchmarks._gateway_model import Scenario, Spread, simulate
from benchmarks.gateway_budget import Row, plot, span, table
from gateway.core.fair_polling import FairIntervals
from gateway.core.thinning import ThinningMode, ThinningPolicy

FIVE_THOUSAND = Scenario(5_000, 1_000, warm_up_s=0.0, measured_s=600.0, drain_s=780.0)


@pytest.mark.timeout(240)
def test_five_thousand_devices_with_a_quota_of_a_thousand_get_no_429s_and_all_their_commands():
    outcome = simulate(FIVE_THOUSAND)
    assert outcome.refused_share <= 0.01
    assert outcome.undelivered == 0
    assert outcome.commands.count > 100
    # 45 of 65 parts of the quota are the polls' while readings want theirs, two thirds of them the idle devices'.
    sweep_s = 5_000 / (1_000 / 60 * 45 / 65 * 2 / 3)
    assert outcome.commands.max_s <= 1.1 * sweep_s
    assert outcome.results.at(0.99) <= 1.0
    assert outcome.merged_share > 0


def test_with_events_and_batches_the_quota_hardly_matters():
    outcome = simulate(replace(FIVE_THOUSAND, events=True, batches=True, measured_s=200.0, drain_s=10.0))
    assert outcome.refused == 0
    assert outcome.undelivered == 0
    assert outcome.commands.max_s <= 1.0
    assert outcome.readings.max_s <= 5.0
    assert outcome.merged_share == 0


def test_within_the_quota_every_command_comes_within_the_idle_interval():
    scenario = Scenario(20, 1_000, commands_per_device_day=500, measured_s=600.0, drain_s=70.0, warm_up_s=60.0)
    outcome = simulate(scenario)
    assert outcome.commands.count > 30
    assert outcome.commands.max_s <= 61.0
    assert outcome.readings.max_s <= 1.0


def test_others_who_use_the_key_are_left_their_part():
    crowded = Scenario(300, 240, others_per_s=2.0, measured_s=600.0, intervals=FairIntervals(idle_s=30.0))
    assert simulate(crowded).refused_share <= 0.01


def test_without_merging_the_readings_of_a_fleet_that_is_too_large_pile_up():
    small = Scenario(300, 60, measured_s=1200.0, reading_every_s=60.0)
    merged = simulate(small)
    kept = simulate(replace(small, thinning=ThinningPolicy(ThinningMode.KEEP_ALL)))
    assert kept.waiting > 2 * merged.waiting
    assert kept.merged == 0
    assert merged.merged > 0


def test_the_same_seed_gives_the_same_figures():
    scenario = Scenario(50, 120, measured_s=300.0)
    first, second = simulate(scenario), simulate(scenario)
    assert (first.requests, first.commands.max_s) == (second.requests, second.commands.max_s)


def test_durations_are_counted_to_two_percent():
    spread = Spread()
    assert math.isnan(spread.at(0.5))
    for hundredth in range(1, 1001):
        spread.add(hundredth / 100)
    assert spread.at(0.5) == pytest.approx(5.0, rel=0.02)
    assert spread.at(0.99) == pytest.approx(9.9, rel=0.02)
    assert spread.at(1.0) == spread.max_s == 10.0


def test_the_plot_is_an_image_and_the_table_has_a_line_for_each_row():
    rows = [
        Row(devices, quota, extensions, (0.1, 1.0, 2.0), (1.0, 700.0, math.nan), 0.5, 900.0, 0.0)
        for devices in (10, 100_000)
        for quota in (1_000, 10_000)
        for extensions in (False, True)
    ]
    image = ET.fromstring(plot(rows))
    assert len(image.findall("{http://www.w3.org/2000/svg}polyline")) == 8
    assert len(table(rows).splitlines()) == 2 + len(rows)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.6, "60 s"), (660, "11 min"), (86_400, "24 h")]
)
def test_durations_are_said_as_a_person_says_them(seconds, text):
    assert span(seconds) == text
