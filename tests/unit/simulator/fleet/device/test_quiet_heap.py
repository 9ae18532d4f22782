from __future__ import annotations

import gc

import pytest

from simulator.fleet.device.quiet_heap import QuietHeap


@pytest.fixture(autouse=True)
def _thawed():
    yield
    gc.unfreeze()


def test_what_was_made_for_more_devices_is_frozen_and_for_the_same_ones_is_not():
    heap = QuietHeap()
    heap.look(10)
    frozen = gc.get_freeze_count()
    devices = [[number] for number in range(1000)]
    heap.look(10)
    assert gc.get_freeze_count() <= frozen
    heap.look(11)
    assert gc.get_freeze_count() >= frozen + len(devices) - 10
