"""What comes of several workers' last words."""

from __future__ import annotations

from simulator.fleet.record import Span
from simulator.fleet.run.recording import joined, named


def test_counts_of_several_workers_are_added_up_and_what_is_the_same_stays():
    one = {"from": "2026-01-01", "made": 7, "refused": 0, "is_whole": True}
    other = {"from": "2026-01-01", "made": 5, "refused": 2, "is_whole": True, "found": 1}
    assert joined(one, other) == {"from": "2026-01-01", "made": 12, "refused": 2, "is_whole": True, "found": 1}


def test_what_was_done_is_told_of_devices_by_the_names_that_all_reports_have():
    fault = Span("storm", "disconnect_storm", 1.0, 2.0, 3, {"share": 0.5, "devices": ["0", "2", "7"]})
    truth = named(fault, {"0": "sim-000001", "2": "sim-000003"}).truth
    assert truth == {"share": 0.5, "devices": ["sim-000001", "sim-000003", "7"]}
    assert named(Span("gone", "blackout", 1.0, 2.0, 0, {"recovery_s": 5}), {}).truth == {"recovery_s": 5}
