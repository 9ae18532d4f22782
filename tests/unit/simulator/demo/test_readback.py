from __future__ import annotations

from agent.core.timekeeping import DEVICE_WALL_S, TIME_UNKNOWN
from simulator.demo.readback import DeviceReadBack, StoredReadingRow
from simulator.fleet.audit.readings import ReadingFact


def test_a_reading_that_the_agent_could_not_date_is_still_what_the_sensor_said():
    said = {"witness_sequence": 1, "witness_check": 7.5}
    flagged = StoredReadingRow(100.0, {**said, TIME_UNKNOWN: 1.0, DEVICE_WALL_S: 99.0})
    other = StoredReadingRow(101.0, {"temperature_celsius": 20.0})
    device = DeviceReadBack("d", (), (flagged, other))
    assert device.by_sequence() == (ReadingFact(1, said),)
