from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.models.condition import ALWAYS_ON, PowerLoss
from simulator.fleet.models.firmware import Firmware
from simulator.fleet.models.power import EmptyBattery, losses
from simulator.fleet.models.settings import (
    BatterySettings,
    ClockSettings,
    FirmwareSettings,
    RebootSettings,
    StateSettings,
    check_states,
)
from simulator.fleet.signals.base import Individual
from simulator.fleet.signals.kinds.battery import Battery
from simulator.fleet.signals.registry import SignalMap

NOW = 1_767_225_600.0
DAY_S = 86_400.0
A = Individual(1, "a")
SIGNALS = TypeAdapter(SignalMap).validate_python(
    {
        "temperature": {"kind": "random_walk", "start": 21, "step": 0.09},
        "fahrenheit": {"kind": "formula", "expression": "temperature * 1.8 + 32", "digits": 6},
    }
)
STATES = {
    "idle": StateSettings(stay_s=1200, next={"active": 1}),
    "active": StateSettings.model_validate(
        {
            "stay_s": 300,
            "next": {"idle": 9, "fault": 1},
            "telemetry_every_s": 5,
            "signals": {"temperature": {"kind": "constant", "value": 60}, "load": {"kind": "constant", "value": 1}},
        }
    ),
    "fault": StateSettings(stay_s=600, next={"idle": 1}, powered=False),
}


def a_model(**parts):
    return build_model(ModelParts("m", SIGNALS, **parts), folder=Path())


def whole():
    return a_model(
        states=STATES,
        battery=BatterySettings(life_s=2 * DAY_S, dead_s=3600, charge_s=1800),
        firmware=FirmwareSettings(versions={"1.0": 1, "1.1": 3}),
        clock=ClockSettings(offset_s=2, drift_ppm=100, set_every_s=DAY_S),
    )


def conditions(model, device, seconds):
    at_s = NOW
    while at_s < NOW + seconds:
        condition = model.condition_at(device, at_s)
        yield condition
        at_s = condition.until_s


def test_a_plain_model_is_always_on():
    model = a_model()
    assert not model.eventful
    assert model.condition_at(A, NOW) is ALWAYS_ON
    assert model.read(A, NOW).keys() == {"temperature", "fahrenheit"}


def test_conditions_follow_each_other_without_gap_and_hold_for_as_long_as_they_say():
    model = whole()
    found = list(conditions(model, Individual(1, "a"), 8 * DAY_S))
    assert len(found) > 200
    assert {condition.off for condition in found} == {None, PowerLoss.BATTERY, PowerLoss.STATE}
    for earlier, later in itertools.pairwise(found):
        assert later.since_s <= earlier.until_s < later.until_s
        if later.powered:
            middle = model.condition_at(Individual(1, "a"), (earlier.until_s + later.until_s) / 2)
            assert middle == later


def test_a_device_boots_anew_after_each_time_without_power_and_only_then():
    model = whole()
    boots = []
    off = True
    begun = 0
    for condition in conditions(model, A, 8 * DAY_S):
        if condition.powered:
            if boots and condition.booted_s != boots[-1] and not off:
                begun += 1  # a block of the state machine began
            if off and boots:
                assert condition.booted_s != boots[-1]
            boots.append(condition.booted_s)
            assert condition.booted_s <= condition.since_s + 1e-6
        off = not condition.powered
    assert begun <= 9
    assert len(set(boots)) > 30


def test_a_condition_is_the_same_whatever_was_asked_before():
    model = whole()
    times = [NOW + n * 1801.5 for n in range(400)]
    known = Individual(3, "a")
    forwards = [model.condition_at(known, t) for t in times]
    assert [model.condition_at(known, t) for t in reversed(times)] == forwards[::-1]
    assert [whole().condition_at(Individual(3, "a"), t) for t in times] == forwards


def test_a_scenario_plays_the_same_whenever_it_is_played():
    parts = ModelParts("m", SIGNALS, states=STATES, battery=BatterySettings(life_s=2 * DAY_S, dead_s=3600, charge_s=60))
    planned = build_model(parts, folder=Path())
    for origin_s in (NOW, NOW + 0.123456, NOW + 77_777.7):
        played = build_model(parts, folder=Path(), origin_s=origin_s)
        at_s = 0.0
        while at_s < 4 * DAY_S:
            plan, play = planned.condition_at(A, at_s), played.condition_at(A, at_s + origin_s)
            assert (play.off, play.state) == (plan.off, plan.state)
            assert play.until_s == pytest.approx(plan.until_s + origin_s, abs=1e-6)
            assert play.until_s > at_s + origin_s
            level = played.read(A, at_s + origin_s + 1, play)["battery_percent"]
            assert level == planned.read(A, at_s + 1, plan)["battery_percent"]
            at_s = plan.until_s


def test_a_state_changes_readings_and_pace_and_what_follows_them():
    model = whole()
    states = {}
    for condition in conditions(model, A, 2 * DAY_S):
        states[condition.state] = condition
    assert set(states) == {"idle", "active", "fault"}
    active = model.read(A, NOW, states["active"])
    assert active["temperature"] == 60
    assert active["fahrenheit"] == 140
    assert active["load"] == 1
    assert "load" not in model.read(A, NOW, states["idle"])
    assert "battery_percent" in active
    assert model.interval_s(states["active"]) == 5
    assert model.interval_s(states["idle"]) == 60


def test_a_battery_that_is_dead_takes_the_power_and_charging_gives_it_back():
    model = a_model(battery=BatterySettings(life_s=DAY_S, dead_s=3600, charge_s=1800, spread=0))
    found = list(conditions(model, A, 5 * DAY_S))
    off = [condition for condition in found if not condition.powered]
    assert {condition.off for condition in off} == {PowerLoss.BATTERY}
    assert all(condition.until_s - condition.since_s == pytest.approx(3600) for condition in off)
    assert model.read(A, off[1].since_s + 60, off[1])["battery_percent"] == 0
    after = model.condition_at(A, off[1].until_s + 1)
    assert after.powered
    assert after.booted_s == pytest.approx(off[1].until_s)
    assert model.condition_at(A, off[1].until_s + 7200).booted_s == pytest.approx(off[1].until_s)


def test_clocks_differ_drift_and_are_set_again():
    model = a_model(clock=ClockSettings(offset_s=2, drift_ppm=100, set_every_s=DAY_S))
    offsets = [model.condition_at(Individual(1, str(n)), NOW).clock.offset_s for n in range(500)]
    assert statistics.stdev(offsets) == pytest.approx(2, rel=0.12)
    condition = model.condition_at(A, NOW + 100)
    clock = condition.clock
    assert clock.at(NOW + 1000) - clock.at(NOW) == pytest.approx(1000 * (1 + clock.drift))
    assert condition.until_s == clock.set_s + DAY_S
    assert model.condition_at(A, condition.until_s).clock.at(condition.until_s) == pytest.approx(
        condition.until_s + clock.offset_s
    )


def test_firmware_comes_by_weight_and_an_update_fails_by_share():
    firmware = Firmware({"1.0": 1, "1.1": 3}, update_s=90, failure_share=0.25)
    devices = [Individual(1, str(n)) for n in range(2000)]
    versions = [firmware.factory_version(device) for device in devices]
    assert versions.count("1.1") == pytest.approx(1500, abs=80)
    updates = [firmware.update(device.name, "2.0") for device in devices]
    assert sum(update.succeeded for update in updates) == pytest.approx(1500, abs=80)
    assert {update.takes_s for update in updates} == {90}
    assert firmware.update(devices[0].name, "2.0") == updates[0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: check_states({"a": StateSettings(stay_s=1, powered=False)}), "off in all of its states"),
        (lambda: check_states({"a": StateSettings(stay_s=1, next={"b": 1})}), "which is none of a"),
        (lambda: BatterySettings(empty=100), "has to be below full"),
        (lambda: RebootSettings(every_s=10, away_s=6), "more than half"),
        (
            lambda: a_model(
                states={
                    **STATES,
                    "odd": StateSettings.model_validate(
                        {"stay_s": 9, "signals": {"x": {"kind": "formula", "expression": "y"}}}
                    ),
                }
            ),
            "state odd: x: there is no reading 'y'",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(make, said):
    with pytest.raises((ValueError, ValidationError, ConfigurationError)) as caught:
        make()
    assert said in str(caught.value)


def test_a_battery_that_is_changed_and_not_charged_has_a_reading_at_every_instant():
    battery = EmptyBattery(Battery("b", life_s=10.0, dead_s=10.0, charge_s=0.0, spread=0.2))
    for number in range(200):
        device, at_s = Individual.at(1, number), 0.0
        for supply in losses(battery, device, 100.0):
            assert supply.until_s > supply.since_s
            at_s = supply.until_s
            for near_s in (math.nextafter(at_s, 0.0), at_s, math.nextafter(at_s, 1e9)):
                assert 5.0 <= battery.battery.moment_at(device, near_s).level <= 100.0
                assert 5.0 <= battery.battery.value_at(device, near_s) <= 100.0
        assert at_s > 0
