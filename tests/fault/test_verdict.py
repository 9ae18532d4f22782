"""The harness is judged: faults that are planted into running agents are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.kill_storm import Plan, Storm

pytestmark = pytest.mark.long


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "planted",
    [
        {"once_runs_again": "run_twice", "sends_under_new_keys": "stored_twice"},
        {"forgets_what_is_over": "lost_commands", "deletes_one_more": "lost_readings"},
    ],
)
def test_a_storm_finds_the_faults_that_were_planted_into_its_agents(tmp_path: Path, planted: dict[str, str]):
    changes = tuple(f"tests.fault.planted:{name}" for name in planted)
    books = Storm(tmp_path, Plan(seed=1, cycles=24, devices=3, changes=changes, service_dies=False)).run()
    assert [name for name, kind in planted.items() if not getattr(books, kind)] == [], books.faults[:10]
