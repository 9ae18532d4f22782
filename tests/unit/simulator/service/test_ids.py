from __future__ import annotations

import uuid

from simulator.service.ids import IdSource
from tests.support.service_running import ManualClock


def test_ids_are_uuids_of_version_7_with_the_time_in_front():
    clock = ManualClock(1_767_225_600_000)
    made = uuid.UUID(IdSource(clock, 1).next())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == clock.now_ms()


def test_a_seed_and_a_clock_that_stands_make_the_same_ids():
    def ids(seed):
        source = IdSource(ManualClock(7), seed)
        return [source.next() for _ in range(20)]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert ids(None) != ids(None)
