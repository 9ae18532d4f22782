from __future__ import annotations

import gc

import pytest

from simulator.fleet.metrics.health import GcFreeze, GcPauses


@pytest.fixture(autouse=True)
def _thawed():
    yield
    gc.unfreeze()


class _Slow(GcPauses):
    """As if the collector had taken so long."""

    took_s = 0.0

    def take(self) -> float:
        return self.took_s


def test_what_was_made_for_more_devices_is_frozen_and_for_the_same_ones_is_not():
    heap = GcFreeze(_Slow())  # in a process full of tests a real collection may take long
    heap.look(10)
    frozen = gc.get_freeze_count()
    devices = [[number] for number in range(1000)]
    heap.look(10)
    assert gc.get_freeze_count() <= frozen
    heap.look(11)
    assert gc.get_freeze_count() >= frozen + len(devices) - 10


def test_what_is_left_by_a_collection_that_took_long_is_frozen():
    pauses = _Slow()
    heap = GcFreeze(pauses)
    heap.look(10)
    frozen = gc.get_freeze_count()
    devices = [[number] for number in range(1000)]
    pauses.took_s = 0.009
    heap.look(10)
    assert gc.get_freeze_count() <= frozen
    pauses.took_s = 0.011
    heap.look(10)
    assert gc.get_freeze_count() >= frozen + len(devices) - 10


def test_the_collector_is_watched_until_the_end():
    before = list(gc.callbacks)
    heap = GcFreeze()
    assert len(gc.callbacks) == len(before) + 1
    heap.close()
    assert gc.callbacks == before
