"""The judge is judged: each kind of fault, planted into the books and into running agents, is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.wire.commands import CommandRecord
from tests.fault.kill_storm import Plan, Storm
from tests.fault.verdict import Books, Look, Reading, Seen, look_at

pytestmark = pytest.mark.long


def record(status: str = "succeeded", handler: str = "only_once", error: str | None = None) -> CommandRecord:
    return CommandRecord(id="c", command_payload={"command": handler}, status=status, error=error)


def lines(*what: str) -> dict[str, list[dict[str, Any]]]:
    return {"c": [{"command_id": "c", "what": each} for each in what]}


def judge(
    seen: Seen | None = None, waiting: tuple[Reading, ...] = (), stored: dict[Reading, int] | None = None, **told: Any
) -> Books:
    """The books of one device with one command that went well, but for what is told otherwise."""
    books = Books()
    books.add(
        **{
            "sent": {"c": "only_once"},
            "records": {"c": record()},
            "effects": lines("begin", "end"),
            "seen": seen or Seen(),
            "waiting": waiting,
            "stored": Counter(stored or {}),
            **told,
        }
    )
    return books


def test_books_in_order_have_no_fault():
    assert judge(stored={("a", 1, 1): 1, ("a", 1, 2): 1}, waiting=(("a", 1, 3),)).faults == []


def test_an_interrupted_command_that_must_not_run_twice_may_end_as_indeterminate():
    told = record("failed", error="indeterminate: the agent ended while it ran, and it must not run twice")
    assert judge(records={"c": told}, effects=lines("begin")).faults == []


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({"records": {}}, "no longer knows it"),
        ({"records": {"c": record("delivered")}}, "never ended"),
        ({"effects": {}}, "succeeded without its effect"),
        ({"effects": lines("begin")}, "succeeded without its effect"),
    ],
)
def test_a_command_that_is_lost_is_found(told, fault):
    books = judge(**told)
    assert books.lost_commands == 1
    assert any(fault in each for each in books.faults)


def test_a_command_that_ran_twice_is_found():
    books = judge(effects=lines("begin", "begin", "end"))
    assert (books.run_twice, len(books.faults)) == (1, 1)


def test_a_handler_that_may_run_again_may_have_run_again():
    assert judge(records={"c": record(handler="repeatable")}, effects=lines("begin", "begin", "end")).faults == []


def test_a_failure_that_no_kill_explains_is_found():
    assert judge(records={"c": record("failed", error="handler_error: oops")}).faults
    assert judge(records={"c": record("failed", "repeatable", "indeterminate: x")}).faults


def test_what_ran_without_having_been_sent_is_found():
    assert judge(effects={**lines("begin", "end"), "x": [{"what": "begin"}]}).faults == ["x ran and was never sent"]


def test_a_command_that_goes_back_or_away_in_the_journal_is_found():
    seen = Seen()
    seen.add(Look({"c": "started", "d": "received"}))
    seen.add(Look({"c": "received"}))
    assert judge(seen=seen).lost_commands == 2


def test_a_reading_that_was_committed_and_is_nowhere_is_found():
    seen = Seen()
    seen.add(Look(readings=frozenset({("a", 1, 1)})))
    assert judge(seen=seen).lost_readings == 1
    assert judge(seen=seen, waiting=(("a", 1, 1),)).faults == []


def test_a_hole_in_what_is_stored_is_a_lost_reading():
    books = judge(stored={("a", 1, 1): 1, ("a", 1, 4): 1, ("b", 1, 1): 1})
    assert books.lost_readings == 2


def test_a_reading_that_is_stored_twice_is_found():
    books = judge(stored={("a", 1, 1): 2})
    assert (books.stored_twice, books.lost_readings) == (1, 0)


def test_an_agent_that_ended_by_itself_and_a_replaced_store_are_found():
    seen = Seen()
    seen.add(Look(incidents=("agent.db was damaged",)))
    assert len(judge(seen=seen, ended_by_itself=[1]).faults) == 2


def test_a_look_does_not_touch_the_store(tmp_path: Path):
    assert look_at(tmp_path / "agent.db", tmp_path / "peek") == Look()
    assert list(tmp_path.iterdir()) == []


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
