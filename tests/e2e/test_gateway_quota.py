"""A real gateway with a key whose quota is too short for its fleet, against a real service that counts."""

from __future__ import annotations

import pytest

from benchmarks.gateway_fleet import prove
from tests.ports import free_port

pytestmark = pytest.mark.long


@pytest.mark.timeout(240)
def test_a_gateway_with_a_short_quota_gets_no_429s_and_delivers_commands_as_soon_as_the_simulation_says(tmp_path):
    # Sixty devices that want to be asked about every ten seconds: 360 polls a minute beside readings and results.
    # Each reads once in the first minute: devices get new ids in every run, and their hashed moments with them.
    proof = prove(
        60,
        240,
        70.0,
        folder=tmp_path,
        commands_per_min=20.0,
        idle_s=10.0,
        reading_every_s=60.0,
        ports=(free_port(), free_port()),
    )
    assert proof.requests > 200
    assert proof.refused_share <= 0.01
    assert len(proof.commands_s) >= 3
    assert proof.commands_s[-1] <= proof.bound_s
    assert len(proof.readings_s) >= 5
