from __future__ import annotations

import itertools
import json
import statistics

import pytest

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.json_text import parse_json
from simulator.fleet.faults.registry import KINDS, build_faults
from simulator.fleet.models.condition import ALWAYS_ON, Condition, WallClock
from simulator.fleet.models.fault_hooks import ActiveFaults, Body, Hook
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
    "clock_jump": {"jump_s": -3600},
    "link_profile": {"profile": "2g"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_does_nothing_before_it_begins_after_its_end_and_to_others(kind):
    fault = a_fault(kind=kind, share=0.5, **EXAMPLES.get(kind, {}))
    chosen = [device for device in FLEET if fault.chooses(device)]
    assert len(chosen) == pytest.approx(200, abs=45)
    other = next(device for device in FLEET if not fault.chooses(device))
    active = ActiveFaults([fault])
    for device, at_s in ((chosen[0], 59.9), (chosen[0], 200.1), (other, 100)):
        time_s = NOW + at_s
        assert dict(values(fault, device, at_s)) == read(device, time_s)
        assert active.held_until(device, time_s) < time_s
        assert list(bodies(fault, device, at_s)) == [Body(a_body(device, at_s))]
        condition = fault.condition(device, time_s, ALWAYS_ON)
        assert condition.powered
        assert condition.clock == WallClock()


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_tells_the_truth_about_itself(kind):
    fault = a_fault(kind=kind, name="mine", share=0.25, **EXAMPLES.get(kind, {}))
    span = fault.truth(FLEET)
    assert (span.name, span.kind, span.begin_s) == ("mine", kind, 60)
    assert span.end_s == 180
    assert span.truth["devices"] == [device.name for device in FLEET if fault.chooses(device)]
    assert span.devices == len(span.truth["devices"])
    assert json.loads(json.dumps(span.truth)) == span.truth


def test_a_frozen_sensor_tells_what_it_told_when_the_fault_began():
    fault = a_fault(kind="frozen_sensor", readings=["temperature_celsius"])
    then = read(A, NOW + 60)
    for at_s in (60, 100, 179):
        now = values(fault, A, at_s)
        assert now["temperature_celsius"] == then["temperature_celsius"]
        assert now["humidity_percent"] == read(A, NOW + at_s)["humidity_percent"]


def conditions(fault, device, from_s, to_s, base=ALWAYS_ON):
    at_s = NOW + from_s
    while at_s < NOW + to_s:
        condition = fault.condition(device, at_s, base)
        assert condition.until_s > at_s
        yield condition
        at_s = condition.until_s


def test_a_loop_goes_up_and_down_and_ends_with_a_device_that_is_on():
    fault = a_fault(kind="reboot_loop", up_s=15)
    for device in FLEET[:30]:
        found = list(conditions(fault, device, 0, 300))
        inside = [condition for condition in found if NOW + 60 < condition.until_s <= NOW + 180]
        assert len(inside) in range(11, 15)
        assert all(a.powered is not b.powered for a, b in itertools.pairwise(inside[1:]))
        assert found[0].powered
        assert found[-1].powered


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


def test_late_batches_are_held_until_their_moment_and_not_beyond_the_end():
    apart = a_fault(kind="late_batches", hold_s=50)
    held = {apart.held_until(device, NOW + 61, 0.0) - NOW for device in FLEET[:50]}
    assert len(held) == 50
    assert min(held) > 61
    assert max(held) <= 111
    together = a_fault(kind="late_batches", hold_s=50, together=True)
    assert {together.held_until(device, NOW + 70, 0.0) for device in FLEET} == {NOW + 110}
    assert together.held_until(A, NOW + 165, 0.0) == NOW + 180


@pytest.mark.parametrize("how", ["cut", "bytes", "utf16", "python"])
def test_a_broken_body_is_not_json(how):
    fault = a_fault(kind="broken_json", often=1, how=how)
    for device in FLEET[:50]:
        (body,) = bodies(fault, device, 100)
        with pytest.raises(InvalidMessage):
            parse_json(body.content)


def test_faults_come_one_after_the_other_and_copies_are_copies_of_the_result():
    faults = [
        a_fault(kind="frozen_sensor"),
        a_fault(kind="duplicates", often=1),
        a_fault(kind="broken_json", often=1),
    ]
    active = ActiveFaults(faults)
    assert active.any(Hook.VALUES)
    assert not active.any(Hook.CONDITION)
    changed = active.values(A, NOW + 100, read(A, NOW + 100), lambda t: read(A, t))
    assert changed == read(A, NOW + 60)
    first, copy = active.bodies(A, NOW + 100, a_body(A, 100))
    assert first.content != a_body(A, 100)
    assert copy.content == first.content


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "frozen"}, "does not match any of the expected tags"),
        ({"kind": "frozen_sensor", "duration_s": 0}, "duration_s"),
        ({"kind": "frozen_sensor", "reading": "x"}, "reading: Extra inputs"),
        ({"kind": "clock_jump", "jump_s": 0}, "stays where it is"),
        ({"kind": "duplicates", "copies": 0}, "copies"),
    ],
)
def test_what_is_no_fault_is_refused(document, said):
    with pytest.raises(ConfigurationError) as caught:
        read_fault({"at_s": 0, "duration_s": 10, **document})
    assert said in str(caught.value)
