"""SIGKILL at random, 150 times, under load: nothing acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.fault.kill_storm import Plan, Storm

pytestmark = pytest.mark.long

CYCLES = int(os.environ.get("KILL_CYCLES", "150"))


@pytest.mark.timeout(300 + 2 * CYCLES)
def test_killing_agents_and_service_again_and_again_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    books = Storm(tmp_path, Plan(seed=CYCLES, cycles=CYCLES)).run()
    assert books.faults == []
    # The load got through: a storm that nothing survived would prove nothing.
    assert books.commands > CYCLES
    assert books.effects > CYCLES
    assert books.readings > 2 * CYCLES
