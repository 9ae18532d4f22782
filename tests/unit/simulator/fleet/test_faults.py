"""Faults: whom they concern, when, and what they do; runs with each kind are in ``test_played_scenarios.py``."""

from __future__ import annotations

import itertools

import pytest
from pydantic import TypeAdapter, ValidationError

from agent.core.values import Moment
from simulator.fleet.faults import ActiveFaults, AnyFault
from simulator.fleet.signals import CLIMATE, DeviceRandom

READER = TypeAdapter(AnyFault)
NOW = 1_767_225_600.0
FLEET = [DeviceRandom(1, n) for n in range(400)]
A = FLEET[0]


def a_fault(**keys):
    return READER.validate_python({"at_s": 60, "duration_s": 120, **keys}).placed(0, 60)


def times(fault, device):
    """All times of a device without power or link."""
    found, after_s = [], 0.0
    while (each := fault.away(device, after_s)) is not None:
        found.append(each)
        after_s = each[1]
    return found


def test_a_loop_goes_up_and_down_and_ends_with_a_device_that_is_on():
    fault = a_fault(kind="reboot_loop", up_s=15)
    for device in FLEET[:30]:
        found = times(fault, device)
        assert len(found) in range(5, 8)
        assert 60 <= found[0][0] <= 80
        assert found[-1][1] <= 180
        assert all(0 < end_s - begin_s <= 5.001 for begin_s, end_s in found)
        assert all(later[0] - earlier[1] == pytest.approx(15) for earlier, later in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "blackout"}, [(60, 180)]),
        ({"kind": "disconnect_storm", "waves": 3, "away_s": 2}, [(60, 62), (100, 102), (140, 142)]),
        ({"kind": "power_cut", "away_s": 2}, [(60, 62)]),
    ],
)
def test_links_are_away_when_the_scenario_says(fault, expected):
    assert times(a_fault(**fault), A) == expected


def test_links_come_back_one_after_the_other_and_restarts_are_spread_over_their_fault():
    fault = a_fault(kind="blackout", recovery_s=20, share=0.5)
    ends = [end_s for device in FLEET for _, end_s in times(fault, device)]
    assert 180 <= min(ends) < 182 < 198 < max(ends) <= fault.end_s == 200
    restart = a_fault(kind="rolling_restart")
    begins = [begin_s for device in FLEET for begin_s, _ in times(restart, device)]
    assert (min(begins), max(begins)) == pytest.approx((60, 175), abs=2)


def test_late_batches_are_held_until_their_moment_and_not_beyond_the_end():
    apart = a_fault(kind="late_batches", hold_s=50)
    held = {apart.held_until_s(device, 61) for device in FLEET[:50]}
    assert len(held) == 50
    assert 61 < min(held) < max(held) <= 111
    assert apart.held_until_s(A, 179) <= 180


def test_faults_come_one_after_the_other_and_what_is_spoiled_has_no_copies():
    frozen, copies = a_fault(kind="frozen_sensor"), a_fault(kind="duplicates", often=1, copies=2)
    now, body = Moment(100, NOW + 100, "boot"), b'{"sensor_data":{"t":20.5}}'
    active = ActiveFaults(0.0, NOW, [frozen, copies])
    assert active.read(A, CLIMATE, now) == CLIMATE.read(A, NOW + 60)
    assert active.outgoing(A, now, body) == (body, 2)
    active.set([copies, a_fault(kind="broken_json", often=1)])
    spoiled, more = active.outgoing(A, now, body)
    assert body.startswith(spoiled)
    assert (spoiled != body, more) == (True, 0)


def test_a_clock_that_jumps_nowhere_is_refused():
    with pytest.raises(ValidationError, match="stays where it is"):
        a_fault(kind="clock_jump", jump_s=0)
