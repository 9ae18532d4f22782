from __future__ import annotations

import pytest

from agent.core.commands import RunLimits


@pytest.mark.parametrize(
    ("inactivity_s", "alive_s", "now_s", "fault"),
    [
        (None, 100.0, 159.9, None),
        (None, 100.0, 160.0, "timeout"),
        (5.0, 100.0, 104.9, None),
        (5.0, 100.0, 105.0, "inactive"),
        (5.0, 130.0, 134.9, None),
        (5.0, 130.0, 135.0, "inactive"),
        # Whoever shows signs of life for ever is out of time all the same.
        (5.0, 159.9, 160.0, "timeout"),
    ],
)
def test_a_run_ends_at_its_timeout_or_when_it_gives_no_sign_of_life(inactivity_s, alive_s, now_s, fault):
    limits = RunLimits(60.0, inactivity_s)
    found = limits.fault("pump", 100.0, alive_s, now_s)
    assert (found or "").partition(":")[0] == (fault or "")
    assert (limits.ends_at(100.0, alive_s) <= now_s) is (fault is not None)
