"""Which gateway fetches whose commands: every device exactly one, by its id alone."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.core.share import Share
from gateway.devices.roster import Roster

DEVICES = [f"device-{number}" for number in range(3000)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_device_is_in_exactly_one_part_and_the_parts_are_of_a_size(count):
    owners = Counter(index for device in DEVICES for index in range(count) if Share(index, count).has(device))
    assert sum(owners.values()) == len(DEVICES)
    assert max(owners.values()) < 1.5 * min(owners.values())


def test_the_part_of_a_device_stays_the_same_over_releases():
    found = [next(index for index in range(4) if Share(index, 4).has(device)) for device in ("d1", "d2", "Ä/ö", "")]
    assert found == [3, 1, 0, 0]


def test_the_roster_follows_the_tokens_and_knows_which_devices_are_its_own():
    now_s, devices = 0.0, set(DEVICES)
    roster = Roster(lambda: devices, lambda: now_s, Share(1, 2))
    assert roster.devices() == devices
    assert roster.own() == set(filter(Share(1, 2).has, devices))
    devices = {"device-0", "device-1", "device-2"}
    now_s += 2.0
    assert roster.own() == {device for device in devices if Share(1, 2).has(device)}
    assert roster.serves("device-0")
    assert not roster.serves("device-3")
