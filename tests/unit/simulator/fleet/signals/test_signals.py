from __future__ import annotations

import itertools
import math
import statistics

import pytest

from simulator.fleet.signals.base import normal, read_all, uniform
from simulator.fleet.signals.battery import Battery
from simulator.fleet.signals.climate import CLIMATE
from simulator.fleet.signals.day import Diurnal
from simulator.fleet.signals.walk import RandomWalk

NOW = 1_767_225_600.0


def test_a_signal_depends_on_seed_device_and_time_alone():
    forwards = [read_all(CLIMATE, 1, "a", NOW + t) for t in range(50)]
    backwards = [read_all(CLIMATE, 1, "a", NOW + t) for t in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert read_all(CLIMATE, 2, "a", NOW) != forwards[0]
    assert read_all(CLIMATE, 1, "b", NOW) != forwards[0]


@pytest.mark.parametrize("name", sorted(CLIMATE))
def test_every_climate_reading_is_finite_for_years(name):
    assert all(math.isfinite(CLIMATE[name].value_at(1, "a", NOW + day * 86_400.0)) for day in range(0, 3000, 97))


def test_a_walk_has_no_jumps_also_where_one_span_ends_and_the_next_begins():
    walk = RandomWalk("t", start=20, step=0.1, span_s=60, digits=6)
    values = [walk.value_at(1, "a", NOW + t / 10) for t in range(3000)]
    assert max(abs(b - a) for a, b in itertools.pairwise(values)) < 0.1 * 5
    assert len(set(values)) > 2000


def test_a_walk_spreads_with_the_root_of_time():
    walk = RandomWalk("t", start=0, step=1.0, span_s=4096, digits=9)
    steps = [walk.value_at(seed, "a", NOW + 400 + 16) - walk.value_at(seed, "a", NOW + 400) for seed in range(400)]
    assert statistics.stdev(steps) == pytest.approx(4.0, rel=0.2)
    assert statistics.fmean(steps) == pytest.approx(0.0, abs=0.7)


def test_the_day_is_warmest_at_its_peak_hour():
    day = Diurnal("t", mean=10, amplitude=5, peak_hour=15)
    midnight = NOW - NOW % 86_400
    values = [day.value_at(1, "a", midnight + hour * 3600) for hour in range(24)]
    assert values.index(max(values)) == 15
    assert values.index(min(values)) == 3


def test_a_battery_only_falls_until_it_is_changed():
    battery = Battery("b", life_s=1000.0)
    values = [battery.value_at(1, "a", NOW + t) for t in range(1000)]
    rises = [index for index in range(1, 1000) if values[index] > values[index - 1]]
    assert len(rises) <= 1
    assert min(values) >= 5
    assert max(values) <= 100


def test_hashed_numbers_look_uniform_and_normal():
    flat = [uniform(3, n) for n in range(4000)]
    assert 0 < min(flat) < 0.01
    assert 0.99 < max(flat) < 1
    assert statistics.fmean(flat) == pytest.approx(0.5, abs=0.02)
    bell = [normal(3, n) for n in range(4000)]
    assert statistics.fmean(bell) == pytest.approx(0, abs=0.06)
    assert statistics.stdev(bell) == pytest.approx(1, abs=0.05)
