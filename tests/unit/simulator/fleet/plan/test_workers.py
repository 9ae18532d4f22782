from __future__ import annotations

from pathlib import Path

import pytest

from simulator.fleet.plan.workers import count_workers
from simulator.fleet.scenario.reading import parse_scenario


@pytest.mark.parametrize(
    ("devices", "more", "cores", "workers"),
    [
        (20, "", 8, 1),
        (2_500, "", 8, 1),
        (2_501, "", 8, 2),
        (100_000, "", 8, 8),
        (3, "workers: 8", 1, 3),
        (100_000, "workers: 5", 1, 5),
        (100_000, "target: {pool: 3}", 8, 3),
        (100_000, "target: {connections: per_device}", 8, 8),
        (10, "kind: backfill\nbackfill: {history_s: 30d}", 8, 2),  # 432,000 readings, one a minute
        (1, "kind: backfill\nbackfill: {history_s: 365d}", 8, 1),
        (100, "kind: backfill\nbackfill: {history_s: 365d}", 8, 8),
        (10, "kind: backfill\nworkers: 3\nbackfill: {history_s: 1d}", 8, 3),
        (6_000, "kind: onboarding_storm\nonboarding: {rate_per_s: 200}", 8, 1),
    ],
)
def test_a_run_takes_as_many_processes_as_its_devices_are_worth(devices, more, cores, workers):
    text = f"scenario: s\nfleet: {{devices: {devices}}}\nphases: [{{name: a, kind: hold, duration_s: 60}}]\n{more}\n"
    assert count_workers(parse_scenario(text.encode(), Path()), cores) == workers
