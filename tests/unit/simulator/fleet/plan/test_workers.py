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
        (6_000, "kind: onboarding_storm\nonboarding: {rate_per_s: 200}", 8, 1),
    ],
)
def test_a_run_takes_as_many_processes_as_its_devices_are_worth(devices, more, cores, workers):
    text = f"scenario: s\nfleet: {{devices: {devices}}}\nphases: [{{name: a, kind: hold, duration_s: 60}}]\n{more}\n"
    assert count_workers(parse_scenario(text.encode(), Path()), cores) == workers
