"""What the journal promises, on the store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.commands import HISTORY_LOST, MOVES, IllegalMove
from agent.core.values import Command, CommandState, Outcome, OutcomeStatus
from agent.errors import StorageError
from agent.store.journal import Journal
from agent.store.store import Store
from agent.wire.secret import MASK, never_show
from tests.support.factories import make_command, make_entry, make_moment, make_outcome
from tests.support.fakes import FakeClock
from tests.support.stores import reopening

_EXAMPLES = itertools.count()
Reopen = Callable[[], Journal]


@pytest.fixture
def reopen(tmp_path) -> Iterator[Reopen]:
    """Gives the journal; each call closes it and opens it again, as a restart does."""
    with reopening(tmp_path / "agent.db", clock=FakeClock()) as reopen_store:
        yield lambda: reopen_store().journal


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


def test_who_took_a_started_command_back_survives_a_restart_and_the_first_one_counts(journal, reopen):
    journal.admit([make_entry("a"), make_entry("b")])
    journal.start("a", make_moment(1001.0))
    for command_id in ("a", "b", "unknown"):
        journal.cancel(command_id, "by command 9")
        journal.cancel(command_id, "by the service")
    known = reopen().known(["a", "b"])
    assert (known["a"].state, known["a"].canceled_by) == (CommandState.STARTED, "by command 9")
    assert (known["b"].state, known["b"].canceled_by) == (CommandState.RECEIVED, None)


def test_what_is_over_keeps_neither_payload_nor_result(journal):
    journal.admit([make_entry("a", command=make_command("a", {"command": "ping", "blob": "x" * 1000}))])
    journal.start("a", make_moment())
    journal.finish("a", make_outcome(result={"blob": "y" * 1000}), make_moment())
    assert journal.known(["a"])["a"].command.payload == {}
    assert journal.known(["a"])["a"].outcome.result == {"blob": "y" * 1000}
    journal.reported(["a"])
    assert journal.known(["a"])["a"].outcome == make_outcome()


def test_of_several_reports_all_count_or_none(journal):
    journal.admit([make_entry("over", CommandState.REPORTED), make_entry("good", CommandState.FINISHED)])
    for other in ("over", "unknown"):
        with pytest.raises(IllegalMove):
            journal.reported(["good", other])
    assert journal.known(["good"])["good"].state == CommandState.FINISHED


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
            make_entry("undeliverable", CommandState.UNDELIVERABLE, received=old),
            *(make_entry(state, CommandState(state), received=old) for state in ("received", "started", "finished")),
        ]
    )
    assert journal.forget(["listed"], 200.0) == 2
    left = journal.known(["reported", "skipped", "listed", "young", "undeliverable", "received", "started", "finished"])
    assert set(left) == {"listed", "young", "undeliverable", "received", "started", "finished"}


def test_a_result_that_is_undeliverable_keeps_what_it_is_and_counts(journal, reopen):
    finished = [
        make_entry(f"c{n}", CommandState.FINISHED, outcome=make_outcome(result={"n": n}), finished=make_moment())
        for n in range(3)
    ]
    journal.admit(finished)
    journal.undeliverable("c0", "405 no such place")
    journal = reopen()
    undelivered = replace(finished[0], state=CommandState.UNDELIVERABLE, undeliverable="405 no such place")
    assert journal.known(["c0"])["c0"] == undelivered
    assert [entry.command.id for entry in journal.in_state("finished")] == ["c1", "c2"]
    assert journal.counts() == {"finished": 2, "undeliverable": 1}


@pytest.mark.parametrize(("result_bytes", "kept"), [(10, 1000), (60_000, 17)])
def test_of_the_oldest_undeliverable_results_only_the_end_stays(tmp_path, result_bytes, kept):
    outcome = make_outcome(result={"blob": "y" * result_bytes})
    ids = [f"c{n}" for n in range(kept + 5)]
    with Store(tmp_path / "agent.db", clock=FakeClock()) as store:
        store.journal.admit([make_entry(each, CommandState.FINISHED, outcome=outcome) for each in ids])
        for each in ids:
            store.journal.undeliverable(each, "405")
        found = store.journal.known(ids)
        assert store.journal.counts() == {"undeliverable": len(ids)}
    assert [each for each in ids if found[each].outcome.result is None] == ids[:5]
    assert found["c0"].outcome == make_outcome()


@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_over_any_moves_and_restarts_the_journal_holds_what_the_table_says(journal, reopen, data):
    """The model is the table: an illegal move changes nothing, a legal one is there after a restart."""
    prefix = next(_EXAMPLES)  # all examples share one journal
    model: dict[str, CommandState] = {}
    journal = reopen()
    moves: dict[CommandState, Callable[[str], object]] = {
        CommandState.STARTED: lambda name: journal.start(name, make_moment()),
        CommandState.FINISHED: lambda name: journal.finish(name, make_outcome(result={"n": 1}), make_moment()),
        CommandState.REPORTED: lambda name: journal.reported([name]),
        CommandState.UNDELIVERABLE: lambda name: journal.undeliverable(name, "405"),
    }
    steps = st.tuples(st.sampled_from("abc"), st.sampled_from([*moves, "admit", "restart"]))
    for letter, step in data.draw(st.lists(steps, max_size=25), label="steps"):
        name = f"{prefix}-{letter}"
        if step == "restart":
            journal = reopen()
        elif step == "admit":
            journal.admit([make_entry(name)])
            model.setdefault(name, CommandState.RECEIVED)
        else:
            after = CommandState(step)
            try:
                moves[after](name)
            except IllegalMove:
                assert name not in model or after not in MOVES[model[name]]
            else:
                assert after in MOVES[model[name]]
                model[name] = after
        found = journal.known([f"{prefix}-{letter}" for letter in "abc"])
        assert {each: entry.state for each, entry in found.items()} == model
        for entry in found.values():
            is_kept = entry.state in {CommandState.FINISHED, CommandState.UNDELIVERABLE}
            assert (entry.outcome is not None and entry.outcome.result is not None) == is_kept


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


def test_a_fault_while_deciding_reaches_the_caller_and_undoes_what_was_written(tmp_path):
    with Store(tmp_path / "agent.db", clock=FakeClock()) as store:

        def decide() -> None:
            store.journal.admit([make_entry("a")], {"counter": "1"})
            raise LookupError("a bug")

        with pytest.raises(LookupError, match="a bug"):
            store.call(decide, writes=True)
        assert store.journal.is_empty()
        assert store.journal.settings("counter") == {}


def test_an_entry_that_cannot_be_written_keeps_the_settings_of_its_admission_out(journal):
    entry = make_entry(command=make_command("a\ud800"))  # SQLite cannot store a lone surrogate
    with pytest.raises(StorageError):
        journal.admit([entry], {"counter": "1"})
    assert journal.setting("counter") is None
    assert journal.counts() == {}


def test_a_question_about_very_many_ids_is_answered(journal):
    journal.admit([make_entry(f"c{n}", CommandState.SKIPPED) for n in range(2000)])
    known = journal.known([f"c{n}" for n in range(3000)])
    assert len(known) == 2000


def test_what_a_handler_says_is_kept_without_the_credentials_of_this_process(tmp_path):
    never_show("an-opaque-token-5d21c8")
    told = {"seen": ["Bearer an-opaque-token-5d21c8", {"an-opaque-token-5d21c8": 1}], "key": "msk_0123456789", "n": 1}
    with_key = make_outcome("failed", result=told, error="401 for mk_live_12345 an-opaque-token-5d21c8")
    ended, rejected = make_entry("c1"), make_entry("c2")
    rejected = replace(rejected, state=CommandState.FINISHED, outcome=with_key, finished=make_moment())
    with Store(tmp_path / "agent.db", clock=FakeClock()) as store:
        store.journal.admit([ended, rejected])
        store.journal.start("c1", make_moment())
        handed_on = store.journal.finish("c1", with_key, make_moment())
        kept = store.journal.known(["c1", "c2"])
    for outcome in (handed_on.outcome, kept["c1"].outcome, kept["c2"].outcome):
        assert outcome is not None
        assert outcome.error == f"401 for {MASK} {MASK}"
        assert outcome.result == {"seen": [f"Bearer {MASK}", {MASK: 1}], "key": MASK, "n": 1}
    assert b"an-opaque-token-5d21c8" not in (tmp_path / "agent.db").read_bytes()
