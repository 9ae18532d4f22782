from __future__ import annotations

import itertools
import json
import statistics

import pytest
from pydantic import ValidationError

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.base import list_faults
from agent.wire.json_text import parse_json
from agent.wire.limits import BODY_BYTES
from agent.wire.sensor_data import PostSensorData
from simulator.fleet.faults.registry import KINDS, build_faults
from simulator.fleet.models.condition import ALWAYS_ON, Condition, PowerLoss, WallClock
from simulator.fleet.models.fault_hooks import ActiveFaults, Body, Hook, Pace
from simulator.fleet.signals.base import Individual
from simulator.fleet.signals.climate import CLIMATE
from tests.fleet_faults import read_fault

NOW = 1_767_225_600.0
FLEET = [Individual(1, f"sim-{n:06d}", n) for n in range(400)]
A = FLEET[0]


def a_fault(**keys):
    (fault,) = build_faults([read_fault({"at_s": 60, "duration_s": 120, **keys})], origin_s=NOW)
    return fault


def read(device, time_s):
    return CLIMATE.read(device, time_s)


def values(fault, device, at_s):
    return fault.values(device, NOW + at_s, read(device, NOW + at_s), lambda t: read(device, t))


def a_body(device, *seconds):
    readings = [
        {"device_id": device.name, "sensor_data": read(device, NOW + t), "recorded_at": f"2026-01-01T00:{t:02.0f}:00Z"}
        for t in seconds
    ]
    return json.dumps(readings[0] if len(readings) == 1 else readings).encode()


def bodies(fault, device, at_s, *seconds):
    return ActiveFaults([fault]).bodies(device, NOW + at_s, a_body(device, *(seconds or (at_s,))))


EXAMPLES = {
    "bad_firmware": {"restarts_every_s": 20, "factors": {"temperature_celsius": 1.8}},
    "clock_jump": {"jump_s": -3600},
    "link_profile": {"profile": "2g"},
    "schema_drift": {"rename": {"temperature_celsius": "temp"}, "retype": {"humidity_percent": "text"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_does_nothing_before_it_begins_after_its_end_and_to_others(kind):
    fault = a_fault(kind=kind, share=0.5, **EXAMPLES.get(kind, {}))
    chosen = [device for device in FLEET if fault.chooses(device)]
    assert len(chosen) == pytest.approx(200, abs=45)
    other = next(device for device in FLEET if not fault.chooses(device))
    active = ActiveFaults([fault])
    pace = Pace(60, 7.5)
    for device, at_s in ((chosen[0], 59.9), (chosen[0], 200.1), (other, 100)):
        time_s = NOW + at_s
        assert dict(values(fault, device, at_s)) == read(device, time_s)
        assert fault.schedule(device, time_s, pace) == pace
        assert list(active.order(device, time_s, 5)) == [0, 1, 2, 3, 4]
        assert list(bodies(fault, device, at_s)) == [Body(a_body(device, at_s))]
        condition = fault.condition(device, time_s, ALWAYS_ON)
        assert condition.powered
        assert condition.clock == WallClock()
        assert condition.factory_firmware == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_does_the_same_for_whoever_asks_again(kind):
    first, second = (a_fault(kind=kind, share=0.7, **EXAMPLES.get(kind, {})) for _ in range(2))
    for device in FLEET[:20]:
        again = Individual(1, device.name, device.index)
        for at_s in (70, 100.5, 170):
            assert first.condition(device, NOW + at_s, ALWAYS_ON) == second.condition(again, NOW + at_s, ALWAYS_ON)
            assert dict(values(first, device, at_s)) == dict(values(second, again, at_s))
            assert list(bodies(first, device, at_s, 1, 2, 3)) == list(bodies(second, again, at_s, 1, 2, 3))
            assert list(first.order(device, NOW + at_s, range(9))) == list(second.order(again, NOW + at_s, range(9)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_tells_the_truth_about_itself(kind):
    fault = a_fault(kind=kind, name="mine", share=0.25, **EXAMPLES.get(kind, {}))
    span = fault.truth(FLEET)
    assert (span.name, span.kind, span.begin_s) == ("mine", kind, 60)
    assert span.end_s == 180
    assert span.truth["devices"] == [device.name for device in FLEET if fault.chooses(device)]
    assert span.devices == len(span.truth["devices"])
    assert json.loads(json.dumps(span.truth)) == span.truth


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_names_the_hooks_that_it_uses_and_no_other(kind):
    fault = a_fault(kind=kind, **EXAMPLES.get(kind, {}))
    seen = set()
    for device, at_s in itertools.product(FLEET[:40], (61, 75, 90, 131, 179)):
        time_s = NOW + at_s
        if fault.condition(device, time_s, ALWAYS_ON) != ALWAYS_ON:
            seen.add(Hook.CONDITION)
        if dict(values(fault, device, at_s)) != read(device, time_s):
            seen.add(Hook.VALUES)
        if fault.schedule(device, time_s, Pace(60, 7.5)) != Pace(60, 7.5):
            seen.add(Hook.SCHEDULE)
        if list(fault.order(device, time_s, range(8))) != list(range(8)):
            seen.add(Hook.ORDER)
        if list(fault.bodies(device, time_s, Body(a_body(device, at_s)))) != [Body(a_body(device, at_s))]:
            seen.add(Hook.BODIES)
    assert seen == fault.hooks


def test_a_frozen_sensor_tells_what_it_told_when_the_fault_began():
    fault = a_fault(kind="frozen_sensor", readings=["temperature_celsius"])
    then = read(A, NOW + 60)
    for at_s in (60, 100, 179):
        now = values(fault, A, at_s)
        assert now["temperature_celsius"] == then["temperature_celsius"]
        assert now["humidity_percent"] == read(A, NOW + at_s)["humidity_percent"]


def test_a_spiking_sensor_spikes_as_often_and_as_high_as_it_should():
    fault = a_fault(kind="spiking_sensor", often=0.2, height=50, readings=["temperature_celsius"])
    jumps = [
        values(fault, device, 60 + n)["temperature_celsius"] - read(device, NOW + 60 + n)["temperature_celsius"]
        for device in FLEET[:40]
        for n in range(50)
    ]
    assert {round(jump) for jump in jumps} == {-50, 0, 50}
    assert sum(jump != 0 for jump in jumps) / len(jumps) == pytest.approx(0.2, abs=0.03)
    assert sum(jump > 1 for jump in jumps) / len(jumps) == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_nan_is_refused_as_json_and_the_same_readings_are_spoiled_alone(value):
    fault = a_fault(kind="nan_sensor", often=0.3, value=value)
    for device in FLEET[:20]:
        (batch,) = bodies(fault, device, 100, *range(10))
        alone = [bodies(fault, device, 170, n)[0] for n in range(10)]
        damaged = [body for body in alone if value.encode() in body.content]
        assert (value.encode() in batch.content) == bool(damaged)
        for body in (batch, *alone):
            if value.encode() in body.content:
                with pytest.raises(InvalidMessage):
                    parse_json(body.content)
        assert batch.content.count(value.encode()) == len(damaged)


def test_drift_of_names_is_valid_and_drift_of_types_is_not():
    fault = a_fault(kind="schema_drift", rename={"temperature_celsius": "temp"}, drop=["signal_dbm"], add={"new": 1.5})
    changed = values(fault, A, 100)
    assert changed == {
        "temp": read(A, NOW + 100)["temperature_celsius"],
        "humidity_percent": read(A, NOW + 100)["humidity_percent"],
        "battery_percent": read(A, NOW + 100)["battery_percent"],
        "new": 1.5,
    }
    for kind in ("text", "object", "array", "null", "boolean"):
        retyped = a_fault(kind="schema_drift", retype={"humidity_percent": kind})
        (body,) = bodies(retyped, A, 100)
        with pytest.raises(ValidationError) as caught:
            PostSensorData.model_validate_json(body.content)
        assert list_faults(caught.value)[0][0] == "sensor_data.humidity_percent"


def test_dead_batteries_take_the_power_at_hashed_moments_and_give_it_back():
    fault = a_fault(kind="dead_battery", spread_s=40)
    assert fault.truth(FLEET).end_s == 220
    for device in FLEET[:30]:
        found = list(conditions(fault, device, 0, 300))
        assert [condition.off for condition in found] == [None, PowerLoss.BATTERY, None]
        assert found[1].until_s - found[1].since_s == pytest.approx(120)
        assert found[2].booted_s == found[1].until_s
    begins = {round(list(conditions(fault, device, 0, 300))[1].since_s) for device in FLEET[:50]}
    assert len(begins) > 20


def conditions(fault, device, from_s, to_s, base=ALWAYS_ON):
    at_s = NOW + from_s
    while at_s < NOW + to_s:
        condition = fault.condition(device, at_s, base)
        assert condition.until_s > at_s
        yield condition
        at_s = condition.until_s


LOOPS = [{"kind": "reboot_loop", "up_s": 15}, {"kind": "bad_firmware", "restarts_every_s": 15}]


@pytest.mark.parametrize("keys", LOOPS)
def test_a_loop_goes_up_and_down_and_ends_with_a_device_that_is_on(keys):
    fault = a_fault(**keys)
    for device in FLEET[:30]:
        found = list(conditions(fault, device, 0, 300))
        inside = [condition for condition in found if NOW + 60 <= condition.since_s < NOW + 180]
        assert len(inside) in range(11, 15)
        assert all(a.powered is not b.powered for a, b in itertools.pairwise(inside))
        assert found[0].powered
        assert found[-1].powered
        boots = {condition.booted_s for condition in found if condition.powered}
        assert len(boots) in range(6, 9)
        on = [condition for condition in found if condition.powered]
        assert all(condition.booted_s <= condition.since_s for condition in on)


def test_bad_firmware_tells_its_version_and_measures_wrong():
    fault = a_fault(kind="bad_firmware", version="2.0-bad", factors={"temperature_celsius": 1.8})
    good = Condition(factory_firmware="1.0")
    assert fault.condition(A, NOW + 100, good).factory_firmware == "2.0-bad"
    assert fault.condition(A, NOW + 200, good).factory_firmware == "1.0"
    assert values(fault, A, 100)["temperature_celsius"] == 1.8 * read(A, NOW + 100)["temperature_celsius"]


def test_skewed_clocks_are_off_by_parts_of_the_most():
    fault = a_fault(kind="clock_skew", offset_s=60, drift_ppm=1000)
    off = [fault.condition(device, NOW + 60, ALWAYS_ON).clock.at(NOW + 60) - NOW - 60 for device in FLEET]
    assert max(map(abs, off)) <= 60
    assert statistics.stdev(off) == pytest.approx(60 / 3**0.5, rel=0.15)
    later = [fault.condition(device, NOW + 160, ALWAYS_ON).clock.at(NOW + 160) - NOW - 160 for device in FLEET]
    gained = [b - a for a, b in zip(off, later, strict=True)]
    assert max(map(abs, gained)) <= 0.1001
    assert statistics.stdev(gained) > 0.03


def test_a_jump_adds_to_a_clock_that_drifts_already():
    drifting = Condition(clock=WallClock(1.0, 0.001, NOW))
    for keys, at_s, jumped in (({}, 100, True), ({}, 190, False), ({"duration_s": 0}, 10_000, True), ({}, 10, False)):
        fault = a_fault(kind="clock_jump", jump_s=-3600, **keys)
        clock = fault.condition(A, NOW + at_s, drifting).clock
        ahead_s = clock.at(NOW + at_s) - NOW - at_s
        assert ahead_s == pytest.approx(1.0 + 0.001 * at_s - (3600 if jumped else 0), abs=1e-6)


def test_duplicates_are_copies_with_the_key_that_was_asked_for():
    fault = a_fault(kind="duplicates", often=0.5, copies=2, delay_s=3, idempotency_key="fresh")
    found = [bodies(fault, device, 100) for device in FLEET]
    doubled = [each for each in found if len(each) == 3]
    assert len(doubled) == pytest.approx(200, abs=40)
    assert {len(each) for each in found} == {1, 3}
    for first, *copies in doubled:
        assert all(not copy.same_key and copy.content == first.content for copy in copies)
        assert [copy.delay_s for copy in copies] == [3, 6]


def test_batches_are_reversed_or_shuffled_and_nothing_is_missing():
    backwards = ActiveFaults([a_fault(kind="out_of_order", order="reversed")])
    assert list(backwards.order(A, NOW + 100, 4)) == [3, 2, 1, 0]
    shuffled = ActiveFaults([a_fault(kind="out_of_order")])
    order = list(shuffled.order(A, NOW + 100, 50))
    assert sorted(order) == list(range(50)) != order


def test_late_batches_are_held_until_their_moment_and_not_beyond_the_end():
    apart = a_fault(kind="late_batches", hold_s=50)
    held = {apart.schedule(device, NOW + 61, Pace(60, 0)).held_until_s - NOW for device in FLEET[:50]}
    assert len(held) == 50
    assert min(held) > 61
    assert max(held) <= 111
    together = a_fault(kind="late_batches", hold_s=50, together=True)
    assert {together.schedule(device, NOW + 70, Pace(60, 0)).held_until_s for device in FLEET} == {NOW + 110}
    assert together.schedule(A, NOW + 165, Pace(60, 0)).held_until_s == NOW + 180


def test_an_oversized_body_is_valid_json_that_is_too_large():
    fault = a_fault(kind="oversized_json", often=1)
    (body,) = bodies(fault, A, 100)
    assert len(body.content) == BODY_BYTES + 1
    assert json.loads(body.content) == json.loads(a_body(A, 100))
    small = a_fault(kind="oversized_json", often=1, size_bytes=2000)
    assert len(bodies(small, A, 100)[0].content) == 2000


@pytest.mark.parametrize("how", ["cut", "bytes", "utf16", "python"])
def test_a_broken_body_is_not_json(how):
    fault = a_fault(kind="broken_json", often=1, how=how)
    for device in FLEET[:50]:
        (body,) = bodies(fault, device, 100)
        with pytest.raises(InvalidMessage):
            parse_json(body.content)


def test_timers_in_step_have_one_phase():
    fault = a_fault(kind="in_step_timers")
    assert {fault.schedule(device, NOW + 100, Pace(60, n / 7)) for n, device in enumerate(FLEET)} == {
        Pace(60, (NOW + 60) % 60)
    }
    assert a_fault(kind="in_step_timers", every_s=7).schedule(A, NOW + 100, Pace(60, 1)).every_s == 7


def test_faults_come_one_after_the_other_and_copies_are_copies_of_the_result():
    faults = [
        a_fault(kind="frozen_sensor"),
        a_fault(kind="schema_drift", add={"new": 1.0}),
        a_fault(kind="duplicates", often=1),
        a_fault(kind="broken_json", often=1),
    ]
    active = ActiveFaults(faults)
    assert active.any(Hook.VALUES)
    assert not active.any(Hook.ORDER)
    changed = active.values(A, NOW + 100, read(A, NOW + 100), lambda t: read(A, t))
    assert changed == {**read(A, NOW + 60), "new": 1.0}
    first, copy = active.bodies(A, NOW + 100, a_body(A, 100))
    assert first.content != a_body(A, 100)
    assert copy.content == first.content


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "frozen"}, "does not match any of the expected tags"),
        ({"kind": "frozen_sensor", "duration_s": 0}, "duration_s"),
        ({"kind": "frozen_sensor", "reading": "x"}, "reading: Extra inputs"),
        ({"kind": "schema_drift"}, "at least one of rename"),
        ({"kind": "clock_jump", "jump_s": 0}, "stays where it is"),
        ({"kind": "duplicates", "copies": 0}, "copies"),
    ],
)
def test_what_is_no_fault_is_refused(document, said):
    with pytest.raises(ConfigurationError) as caught:
        read_fault({"at_s": 0, "duration_s": 10, **document})
    assert said in str(caught.value)
