"""The journal's contract, on the fake, on SQLite in one thread, and on SQLite behind its writer thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store_service import StoreService
from agent.core.commands import HISTORY_LOST, IllegalMove
from agent.core.values import Admission, Command, CommandState, Outcome, OutcomeStatus, Recall
from agent.errors import StorageError
from agent.ports import Journal
from tests.factories import make_command, make_entry, make_moment, make_outcome
from tests.fakes import FakeClock, FakeJournal

Reopen = Callable[[], Journal]


@pytest.fixture(params=["fake", "sqlite", "service"])
def reopen(request, tmp_path) -> Iterator[Reopen]:
    """Gives the journal; each call closes it and opens it again, as a restart does."""
    opened: list[Any] = []

    def close() -> None:
        if opened:
            last = opened.pop()
            last.stop(60) if isinstance(last, StoreService) else last.close()

    def open_again() -> Journal:
        if request.param == "fake":
            return fake
        close()
        if request.param == "sqlite":
            opened.append(SqliteStore(tmp_path / "agent.db", clock=FakeClock()))
            return opened[0]
        opened.append(StoreService(tmp_path / "agent.db", clock=FakeClock()))
        opened[0].start()
        return opened[0].journal

    fake = FakeJournal()
    yield open_again
    close()


@pytest.fixture
def journal(reopen) -> Journal:
    return reopen()


def test_a_new_journal_is_empty_until_the_first_admit_even_of_nothing(journal, reopen):
    assert journal.is_empty()
    journal.admit([])
    assert not journal.is_empty()
    assert not reopen().is_empty()


def test_a_journal_that_forgot_everything_is_not_empty(journal):
    journal.admit([make_entry("a", CommandState.SKIPPED)])
    assert journal.forget([], 1e12) == 1
    assert not journal.is_empty()


def test_an_entry_comes_back_as_it_was_after_a_restart(journal, reopen):
    command = Command("id / with ? signs ü", {"command": "ping", "n": [1, 2.5, None, "ü"]}, 1.5, 2.5, "queued", 40)
    entry = make_entry(command=command)
    journal.admit([entry])
    assert reopen().known([command.id, "another"]) == {command.id: entry}


def test_an_id_that_is_there_already_is_left_as_it_is(journal):
    journal.admit([make_entry("a", handler="first")])
    journal.start("a", make_moment())
    journal.admit([make_entry("a", handler="second"), make_entry("b")])
    assert journal.known(["a"])["a"].handler == "first"
    assert journal.known(["a"])["a"].state == CommandState.STARTED
    assert set(journal.known(["a", "b"])) == {"a", "b"}


def test_the_way_from_received_to_reported_survives_restarts(journal, reopen):
    entry = make_entry("a")
    journal.admit([entry])
    journal = reopen()
    journal.start("a", make_moment(1001.0))
    journal = reopen()
    found = journal.known(["a"])["a"]
    assert (found.state, found.attempts, found.started) == (CommandState.STARTED, 1, make_moment(1001.0))
    outcome = Outcome(OutcomeStatus.FAILED, {"partial": 1}, "timeout: it took too long")
    journal.finish("a", outcome, make_moment(1002.0))
    journal = reopen()
    found = journal.known(["a"])["a"]
    assert (found.state, found.outcome, found.finished) == (CommandState.FINISHED, outcome, make_moment(1002.0))
    journal.reported(["a"])
    assert reopen().known(["a"])["a"].state == CommandState.REPORTED


def test_a_second_start_counts_a_second_attempt(journal):
    journal.admit([make_entry("a")])
    journal.start("a", make_moment(1001.0))
    journal.start("a", make_moment(1005.0, boot_id="boot-2"))
    found = journal.known(["a"])["a"]
    assert (found.attempts, found.started) == (2, make_moment(1005.0, boot_id="boot-2"))


def test_what_is_over_keeps_neither_payload_nor_result(journal):
    journal.admit([make_entry("a", command=make_command("a", {"command": "ping", "blob": "x" * 1000}))])
    journal.start("a", make_moment())
    journal.finish("a", make_outcome(result={"blob": "y" * 1000}), make_moment())
    assert journal.known(["a"])["a"].command.payload == {}
    assert journal.known(["a"])["a"].outcome.result == {"blob": "y" * 1000}
    journal.reported(["a"])
    assert journal.known(["a"])["a"].outcome == make_outcome()


@pytest.mark.parametrize("move", ["start", "finish", "reported"])
def test_a_move_that_the_table_does_not_have_is_refused_and_changes_nothing(journal, move):
    journal.admit([make_entry("over", CommandState.REPORTED), make_entry("good", CommandState.FINISHED)])
    for command_id in ("over", "unknown"):
        moves = {
            "start": lambda name=command_id: journal.start(name, make_moment()),
            "finish": lambda name=command_id: journal.finish(name, make_outcome(), make_moment()),
            "reported": lambda name=command_id: journal.reported(["good", name]),
        }
        with pytest.raises(IllegalMove):
            moves[move]()
    assert journal.known(["over"])["over"].state == CommandState.REPORTED
    assert journal.known(["good"])["good"].state == CommandState.FINISHED


def test_reporting_the_same_id_twice_in_one_call_is_one_report(journal):
    journal.admit([make_entry("a", CommandState.FINISHED, outcome=make_outcome())])
    journal.reported(["a", "a"])
    assert journal.known(["a"])["a"].state == CommandState.REPORTED


def test_entries_in_a_state_come_oldest_first_and_bounded(journal, reopen):
    entries = [make_entry(f"c{n}", state) for n, state in enumerate([CommandState.RECEIVED, CommandState.SKIPPED] * 3)]
    journal.admit(entries)
    journal = reopen()
    ids = [entry.command.id for entry in journal.in_state("received")]
    assert ids == ["c0", "c2", "c4"]
    assert [entry.command.id for entry in journal.in_state("received", "skipped", limit=3)] == ["c0", "c1", "c2"]
    assert journal.in_state() == []
    assert journal.in_state("started", "finished") == []


def test_only_what_is_over_old_and_no_longer_listed_is_forgotten(journal):
    old, young = make_moment(wall_s=100.0), make_moment(wall_s=300.0)
    journal.admit(
        [
            make_entry("reported", CommandState.REPORTED, received=old),
            make_entry("skipped", CommandState.SKIPPED, received=old),
            make_entry("listed", CommandState.REPORTED, received=old),
            make_entry("young", CommandState.REPORTED, received=young),
            *(make_entry(state, CommandState(state), received=old) for state in ("received", "started", "finished")),
        ]
    )
    assert journal.forget(["listed"], 200.0) == 2
    left = journal.known(["reported", "skipped", "listed", "young", "received", "started", "finished"])
    assert set(left) == {"listed", "young", "received", "started", "finished"}


def test_settings_survive_a_restart_and_can_be_deleted(journal, reopen):
    journal.put_setting("interval.board", "30")
    journal.put_setting("interval.board", "60")
    journal.put_setting("other", "1")
    journal.put_setting("other", None)
    journal = reopen()
    assert journal.setting("interval.board") == "60"
    assert journal.setting("other") is None


def test_admitting_clears_the_note_that_the_history_was_lost(journal):
    journal.put_setting(HISTORY_LOST, "1")
    journal.admit([make_entry("a")])
    assert journal.setting(HISTORY_LOST) is None


def test_what_is_decided_on_what_is_known_is_admitted(journal):
    journal.admit([make_entry("a")])
    journal.put_setting(HISTORY_LOST, "1")
    seen: list[Recall] = []

    def choose(recall: Recall) -> Admission:
        seen.append(recall)
        return Admission([make_entry("b")])

    journal.decide(["a", "b"], choose)
    journal.decide(["a", "b"], choose)
    assert [sorted(recall.known) for recall in seen] == [["a"], ["a", "b"]]
    assert [recall.history_lost for recall in seen] == [True, False]


def test_to_decide_on_nothing_writes_nothing_and_to_admit_nothing_is_the_first_contact(journal):
    journal.decide(["a"], lambda _recall: None)
    assert journal.is_empty()
    journal.decide(["a"], lambda recall: Admission(()) if recall.is_empty else None)
    assert not journal.is_empty()


def test_a_fault_while_deciding_reaches_the_caller_and_writes_nothing(journal):
    def choose(_recall: Recall) -> Admission:
        raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        journal.decide(["a"], choose)
    assert journal.is_empty()


def test_settings_are_admitted_with_the_entries_that_were_decided_by_them(journal, reopen):
    seen: list[Recall] = []

    def choose(recall: Recall) -> Admission:
        seen.append(recall)
        number = int(recall.settings.get("counter", "0")) + 1
        return Admission([make_entry(f"c{number}")], {"counter": str(number)})

    journal.put_setting("other", "1")
    journal.decide([], choose, ["counter", "absent"])
    journal.decide([], choose, ["counter", "absent"])
    journal = reopen()
    assert [recall.settings for recall in seen] == [{}, {"counter": "1"}]
    assert journal.setting("counter") == "2"
    assert sorted(journal.known(["c1", "c2"])) == ["c1", "c2"]


def test_an_entry_that_cannot_be_written_keeps_the_settings_of_its_admission_out(journal, request):
    if isinstance(journal, FakeJournal):
        journal.fault = "the disk is full"
        entry = make_entry("a")
    else:
        entry = make_entry("a", handler="\ud800")  # SQLite cannot store a lone surrogate
    with pytest.raises((StorageError, UnicodeEncodeError)):
        journal.decide([], lambda _recall: Admission([entry], {"counter": "1"}))
    assert journal.setting("counter") is None
    assert not journal.known(["a"])


def test_a_question_about_very_many_ids_is_answered(journal):
    journal.admit([make_entry(f"c{n}", CommandState.SKIPPED) for n in range(2000)])
    known = journal.known([f"c{n}" for n in range(3000)])
    assert len(known) == 2000
