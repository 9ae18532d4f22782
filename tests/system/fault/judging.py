"""What must be true after any number of kills: the books of the outside against what service and effects hold."""

from __future__ import annotations

import time
from collections import Counter

from agent.errors import ServiceError
from agent.wire.models import FINAL_STATES, CommandRecord
from tests.system.fault.rig import Books, Rig

_SETTLE_S = 90.0


def judge_commands(books: Books, commands: dict[str, CommandRecord], runs: Counter[str], *, rounds: int) -> None:
    assert len(books.sent) > rounds, "the load did not get through"
    assert set(books.sent) <= set(commands), "a command whose sending was answered is gone"
    assert not {command_id: times for command_id, times in runs.items() if times > 1}, "a 'once' handler ran twice"
    assert set(runs) <= set(commands), "something ran that was never sent"
    for command_id, record in commands.items():
        if record.status == "succeeded":
            assert runs[command_id] == 1, f"{command_id} succeeded without its effect"
        else:
            assert record.status == "failed", record
            assert "indeterminate" in (record.error or record.status_reason or ""), record
    assert Counter(record.status for record in commands.values())["succeeded"] > rounds / 2


def judge_readings(books: Books, committed: set[int], own: Counter[int], posted: Counter[int], *, rounds: int) -> None:
    assert committed, "no cycle caught a reading in the outbox"
    assert not committed - set(own), "a reading that the outbox had committed is lost"
    assert not {sequence for sequence, times in own.items() if times > 1}, "a reading is stored twice"
    assert len(books.posted) > rounds, "the load did not get through"
    assert not set(books.posted) - set(posted), "a reading whose posting was answered is gone"
    assert not {sequence for sequence, times in posted.items() if times > 1}, "a reading is stored twice"
    assert set(posted) <= {*books.posted, *books.unsure}, "a reading is stored that nobody posted"


def wait_until_all_ended(rig: Rig, books: Books) -> dict[str, CommandRecord]:
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


def stored(rig: Rig, device_id: str, name: str, *, at_least: set[int]) -> Counter[int]:
    """Sequence number -> how often it is stored, once everything of ``at_least`` is there or time is up."""
    deadline_s = time.monotonic() + _SETTLE_S
    with rig.client() as client:
        while True:
            records = client.sensor_data(device_id=device_id)
            found = Counter(int(record.sensor_data[name]) for record in records if name in record.sensor_data)
            if at_least <= set(found) or time.monotonic() > deadline_s:
                return found
            time.sleep(0.2)
