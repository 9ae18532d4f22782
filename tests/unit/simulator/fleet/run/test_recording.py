"""What comes of several workers' last words."""

from __future__ import annotations

from simulator.fleet.run.recording import joined


def test_counts_of_several_workers_are_added_up_and_what_is_the_same_stays():
    one = {"from": "2026-01-01", "made": 7, "refused": 0, "is_whole": True}
    other = {"from": "2026-01-01", "made": 5, "refused": 2, "is_whole": True, "found": 1}
    assert joined(one, other) == {"from": "2026-01-01", "made": 12, "refused": 2, "is_whole": True, "found": 1}
