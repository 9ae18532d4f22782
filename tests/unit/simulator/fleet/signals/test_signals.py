from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet.signals.base import Individual, Shaped, SignalSet, period_at, read_all, salt_of
from simulator.fleet.signals.chain import Chain, ChainState, time_shares
from simulator.fleet.signals.climate import CLIMATE
from simulator.fleet.signals.kinds import Battery, Constant, Diurnal, RandomWalk

NOW = 1_767_225_600.0
A = Individual(1, "a")


def test_a_reading_depends_on_seed_device_and_time_alone():
    forwards = [read_all(CLIMATE, 1, "a", NOW + t) for t in range(50)]
    backwards = [read_all(CLIMATE, 1, "a", NOW + t) for t in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert read_all(CLIMATE, 2, "a", NOW) != forwards[0]
    assert read_all(CLIMATE, 1, "b", NOW) != forwards[0]


def test_values_are_kept_within_bounds_and_rounded():
    signals = SignalSet(
        {
            "high": Shaped(Constant(99.0), high=50.0),
            "low": Shaped(Constant(-9.0), low=0.5),
            "third": Shaped(Constant(1 / 3), digits=3),
        }
    )
    assert signals.read(A, NOW) == {"high": 50.0, "low": 0.5, "third": 0.333}


def test_what_has_no_finite_value_is_left_out():
    signals = SignalSet(
        {"nan": Shaped(Constant(math.nan)), "inf": Shaped(Constant(math.inf)), "one": Shaped(Constant(1.0))}
    )
    assert signals.read(A, NOW) == {"one": 1.0}


def test_a_walk_has_no_jumps_also_where_one_span_ends_and_the_next_begins():
    walk = RandomWalk("t", start=20, step=0.1, span_s=60, resolution_s=0.25)
    values = [walk.value_at(A, NOW + t / 10) for t in range(3000)]
    assert max(abs(b - a) for a, b in itertools.pairwise(values)) < 0.1 * 5
    assert len(set(values)) > 2000


@pytest.mark.parametrize("lag_s", [4, 16, 64, 400])
def test_a_walk_spreads_with_the_root_of_time(lag_s):
    walk = RandomWalk("t", start=0, step=1.0, span_s=40_960)
    steps = [
        walk.value_at(device, NOW + 400 + lag_s) - walk.value_at(device, NOW + 400)
        for device in (Individual(seed, "a") for seed in range(1500))
    ]
    assert statistics.stdev(steps) == pytest.approx(math.sqrt(lag_s), rel=0.12)
    assert statistics.fmean(steps) == pytest.approx(0.0, abs=4 * math.sqrt(lag_s / 1500))


def test_a_walk_is_at_its_start_where_a_span_ends():
    walk = RandomWalk("t", start=7.0, step=1.0, span_s=1000)
    phase_s = 1000 * A.fraction(salt_of("random_walk", "t"))
    assert walk.value_at(A, 5_000_000 - phase_s + 1e-6) == pytest.approx(7.0, abs=0.05)
    assert abs(walk.value_at(A, 5_000_500 - phase_s) - 7.0) > 0.5


def test_the_day_is_warmest_at_its_peak_hour():
    day = Diurnal("t", mean=10, amplitude=5, peak_hour=15)
    midnight = NOW - NOW % 86_400
    values = [day.value_at(A, midnight + hour * 3600) for hour in range(24)]
    assert values.index(max(values)) == 15
    assert values.index(min(values)) == 3


DOOR = {
    "shut": ChainState(900),
    "open": ChainState(60, fixed=True, ways={"shut": 9, "stuck": 1}),
    "stuck": ChainState(600, ways={"open": 1}),
}


def test_a_chain_goes_only_the_ways_that_it_has_and_stays_as_long_as_it_should():
    chain = Chain("door", DOOR)
    stays = []
    at_s = NOW
    while at_s < NOW + 60 * 86_400:
        stays.append(chain.interval_at(A, at_s))
        at_s = stays[-1].until_s
    assert all(a.until_s == b.since_s for a, b in itertools.pairwise(stays))
    ways = [(a.state, b.state) for a, b in itertools.pairwise(stays)]
    odd = [way for way in ways if way[1] not in (DOOR[way[0]].ways or {"open", "stuck"})]
    assert len(odd) <= 60 * 86_400 / 90_000 + 1  # only where a block begins
    lengths = [stay.until_s - stay.since_s for stay in stays if stay.state == "shut"]
    assert statistics.fmean(lengths) == pytest.approx(900, rel=0.1)
    assert {round(stay.until_s - stay.since_s) for stay in stays if stay.state == "open"} >= {60}


def test_a_chain_spends_its_time_as_the_long_run_says():
    shares = time_shares(DOOR)
    chain = Chain("door", DOOR)
    seen = [chain.interval_at(Individual(1, str(n)), NOW).state for n in range(2000)]
    for state, share in shares.items():
        assert seen.count(state) / 2000 == pytest.approx(share, abs=0.03)
    assert sum(shares.values()) == pytest.approx(1)


def test_a_battery_only_falls_until_it_is_changed():
    battery = Battery("b", life_s=1000.0)
    values = [battery.value_at(A, NOW + t) for t in range(1000)]
    rises = [index for index in range(1, 1000) if values[index] > values[index - 1]]
    assert len(rises) <= 1
    assert min(values) >= 5
    assert max(values) <= 100


def test_hashed_numbers_look_uniform_and_normal():
    salt = salt_of("test")
    flat = [A.uniform(salt, n) for n in range(4000)]
    assert 0 < min(flat) < 0.01
    assert 0.99 < max(flat) < 1
    assert statistics.fmean(flat) == pytest.approx(0.5, abs=0.02)
    bell = [A.normal(salt, n) for n in range(4000)]
    assert statistics.fmean(bell) == pytest.approx(0, abs=0.06)
    assert statistics.stdev(bell) == pytest.approx(1, abs=0.05)
    phases = [Individual(1, str(n)).fraction(salt) for n in range(4000)]
    assert statistics.fmean(phases) == pytest.approx(0.5, abs=0.02)
    assert min(phases) >= 0
    assert max(phases) < 1


@given(
    number=st.integers(-1000, 60_000_000),
    length_s=st.floats(0.01, 1e7),
    phase=st.floats(0, 1, exclude_max=True),
    origin_s=st.sampled_from([0.0, NOW]),
)
def test_who_waits_for_the_end_of_a_turn_is_in_the_next_one(number, length_s, phase, origin_s):
    turn = period_at(origin_s + number * length_s, length_s, phase, origin_s)
    assert turn.begin_s <= origin_s + number * length_s < turn.end_s
    following = period_at(turn.end_s, length_s, phase, origin_s)
    assert (following.number, following.begin_s) == (turn.number + 1, turn.end_s)
