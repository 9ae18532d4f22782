"""A worker's devices together: what concerns all of them is spread over turns; a turn of the drain looks at none."""

from __future__ import annotations

import pytest

from simulator.fleet.device.driver import DeviceDriver
from simulator.fleet.device.model import SharedSettings
from simulator.fleet.engine.wheel import FIRES_PER_TURN, Wheel
from tests.virtual_clock import VirtualClock


class Device:
    """A slot that counts how often it is reached, and notes what it is set to."""

    reached = 0

    def __init__(self, index: int) -> None:
        self.index = index
        self.driver = None
        self.is_sampling = True

    def sample(self, *, on: bool) -> None:
        Device.reached += 1
        self.is_sampling = on
        self.driver.note(self.index, settled=self.index % 100 != 7)

    def switch_off(self) -> None: ...


class Rig:
    def __init__(self, count: int) -> None:
        Device.reached = 0
        self.clock = VirtualClock()
        self.devices = [Device(index) for index in range(count)]
        self.news = 0
        self.driver = DeviceDriver(None, Wheel(self.clock), SharedSettings(frozenset(), 1, "run"), on_news=self._hear)
        self.driver.slots = self.devices
        for device in self.devices:
            device.driver = self.driver

    def _hear(self) -> None:
        self.news += 1

    def turns(self) -> list[int]:
        """How many devices each turn of the loop reaches, until there is nothing to do any more."""
        found = [Device.reached]
        while self.clock.next_s() < float("inf"):
            waiting = self.clock._waiting.pop(0)[2]
            before = Device.reached
            waiting.callback()
            found.append(Device.reached - before)
        return found


@pytest.mark.parametrize("count", [100, 10_000])
def test_the_end_of_sampling_reaches_every_device_and_not_many_in_one_turn(count):
    rig = Rig(count)
    rig.driver.sample(on=False)
    assert not rig.driver.has_settled()
    assert max(rig.turns()) == FIRES_PER_TURN
    assert Device.reached == count
    assert not any(device.is_sampling for device in rig.devices)
    assert rig.news == 1


@pytest.mark.parametrize("count", [100, 10_000])
def test_a_turn_of_the_drain_looks_at_no_device(count):
    rig = Rig(count)
    rig.driver.sample(on=False)
    rig.turns()
    reached = Device.reached
    late = rig.driver.unsettled()
    assert late == list(range(7, count, 100))
    for index in late[:-1]:
        rig.driver.note(index, settled=True)
        assert not rig.driver.has_settled()
    rig.driver.switch_off(late[-1])  # without power it has nothing to hand over
    assert rig.driver.has_settled()
    rig.driver.note(3, settled=False)
    assert (rig.driver.has_settled(), rig.driver.unsettled()) == (False, [3])
    assert Device.reached == reached


def test_sampling_that_begins_again_meanwhile_reaches_all_of_them():
    rig = Rig(200)
    rig.driver.sample(on=False)
    rig.driver.sample(on=True)
    rig.turns()
    assert all(device.is_sampling for device in rig.devices)


def test_no_devices_have_nothing_to_hand_over():
    rig = Rig(0)
    rig.driver.sample(on=False)
    assert rig.driver.has_settled()
