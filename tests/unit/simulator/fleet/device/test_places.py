"""A worker's devices together: whether all have settled is asked at each turn of the drain."""

from __future__ import annotations

from types import SimpleNamespace

from simulator.fleet.device.places import Places


class Late:
    """A device with something to hand over; counts how often somebody looks."""

    looks = 0

    def __init__(self, *, settled: bool) -> None:
        self.is_settled = settled

    @property
    def settled(self) -> bool:
        Late.looks += 1
        return self.is_settled


def test_a_turn_of_the_drain_does_not_look_at_every_device():
    devices = [Late(settled=n != 700) for n in range(1000)]
    places = Places([SimpleNamespace(device=device, index=n) for n, device in enumerate(devices)], 0, None)
    assert not places.has_settled()
    Late.looks = 0
    for _ in range(50):
        assert not places.has_settled()
    assert Late.looks == 50
    devices[700].is_settled, devices[3].is_settled = True, False
    assert not places.has_settled()  # one before the late one is found as well
    devices[3].is_settled = True
    assert places.has_settled()


def test_devices_without_power_have_nothing_to_hand_over():
    assert Places([SimpleNamespace(device=None, index=0)], 0, None).has_settled()
    assert Places([], 0, None).has_settled()
