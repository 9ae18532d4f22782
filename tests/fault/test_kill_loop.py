"""SIGKILL of agent and service in a loop, under load: nothing that was answered or committed is lost or done twice."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.fault.judging import judge_commands, judge_readings, stored, wait_until_all_ended
from tests.fault.rig import Books, Rig, load

CYCLES = int(os.environ.get("KILL_CYCLES", "50"))


@pytest.mark.timeout(600 + 5 * CYCLES)
def test_killing_agent_and_service_again_and_again_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    chance = random.Random(CYCLES)
    books, committed = Books(), set[int]()
    with Rig(tmp_path) as rig:
        rig.start_agent()
        with load(rig, books):
            for cycle in range(CYCLES):
                # The interesting moments lie everywhere: during start, recovery, a poll, a commit, a program's run.
                time.sleep(chance.uniform(0.3, 1.2))
                if cycle % 3 != 1:
                    rig.agent.kill()
                    committed |= rig.committed_sequences()
                if cycle % 3 != 0:
                    rig.service.kill()
                    rig.start_service()
                if not rig.agent.running:
                    rig.start_agent()
        commands = wait_until_all_ended(rig, books)
        own = stored(rig, rig.device_id, "witness_sequence", at_least=committed)
        posted = stored(rig, rig.load_device_id, "sequence", at_least=set(books.posted))
        runs = rig.runs()

    judge_commands(books, commands, runs, rounds=CYCLES)
    judge_readings(books, committed, own, posted, rounds=CYCLES)
