"""SIGKILL of agent and service in a loop, under load: nothing that was answered or committed is lost or done twice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from agent.errors import ServiceError
from agent.wire.commands import FINAL_STATES, CommandRecord
from tests.fault.rig import Books, Rig, load

CYCLES = int(os.environ.get("KILL_CYCLES", "50"))
_SETTLE_S = 90.0


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
        commands = _wait_until_all_ended(rig, books)
        own = _stored(rig, rig.device_id, "witness_sequence", at_least=committed)
        posted = _stored(rig, rig.load_device_id, "sequence", at_least=set(books.posted))
        runs = rig.runs()

    _judge_commands(books, commands, runs)
    _judge_readings(books, committed, own, posted)


def _judge_commands(books: Books, commands: dict[str, CommandRecord], runs: Counter[str]) -> None:
    assert len(books.sent) > CYCLES, "the load did not get through"
    assert set(books.sent) <= set(commands), "a command whose sending was answered is gone"
    assert not {command_id: times for command_id, times in runs.items() if times > 1}, "a 'once' handler ran twice"
    assert set(runs) <= set(commands), "something ran that was never sent"
    for command_id, record in commands.items():
        if record.status == "succeeded":
            assert runs[command_id] == 1, f"{command_id} succeeded without its effect"
        else:
            assert record.status == "failed", record
            assert "indeterminate" in (record.error or record.status_reason or ""), record
    assert Counter(record.status for record in commands.values())["succeeded"] > CYCLES / 2


def _judge_readings(books: Books, committed: set[int], own: Counter[int], posted: Counter[int]) -> None:
    assert committed, "no cycle caught a reading in the outbox"
    assert not committed - set(own), "a reading that the outbox had committed is lost"
    assert not {sequence for sequence, times in own.items() if times > 1}, "a reading is stored twice"
    assert len(books.posted) > CYCLES, "the load did not get through"
    assert not set(books.posted) - set(posted), "a reading whose posting was answered is gone"
    assert not {sequence for sequence, times in posted.items() if times > 1}, "a reading is stored twice"
    assert set(posted) <= {*books.posted, *books.unsure}, "a reading is stored that nobody posted"


def _wait_until_all_ended(rig: Rig, books: Books) -> dict[str, CommandRecord]:
    deadline_s = time.monotonic() + _SETTLE_S
    with rig.client() as client:
        while True:
            try:
                records = client.device_commands(rig.device_id).records
            except ServiceError:
                records = ()
            ended = {record.id for record in records if record.status in FINAL_STATES}
            if ended >= set(books.sent) and all(record.status in FINAL_STATES for record in records):
                return {str(record.id): record for record in records}
            assert time.monotonic() < deadline_s, f"{len(set(books.sent) - ended)} commands never ended"
            time.sleep(0.2)


def _stored(rig: Rig, device_id: str, name: str, *, at_least: set[int]) -> Counter[int]:
    """Sequence number -> how often it is stored, once everything of ``at_least`` is there or time is up."""
    deadline_s = time.monotonic() + _SETTLE_S
    with rig.client() as client:
        while True:
            records = client.sensor_data(device_id=device_id)
            found = Counter(int(record.sensor_data[name]) for record in records if name in record.sensor_data)
            if at_least <= set(found) or time.monotonic() > deadline_s:
                return found
            time.sleep(0.2)
