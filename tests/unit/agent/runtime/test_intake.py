from __future__ import annotations

from collections.abc import Iterable

import pytest

from agent.core.commands import HISTORY_LOST
from agent.core.values import CommandPoll, CommandState, Contract, JournalEntry
from agent.errors import StorageError
from agent.runtime.intake import Intake, resume
from tests.factories import make_command, make_entry, make_moment, make_outcome, make_rules
from tests.fakes import START_WALL_S, FakeClock, FakeJournal


class FakeDispatcher:
    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.refills = 0
        self.is_free = False
        self.claimed: list[str] = []
        self.released: list[str] = []

    def claim(self, entry: JournalEntry) -> bool:
        return self.is_free

    def release(self, command_ids: Iterable[str]) -> None:
        self.released += command_ids

    def dispatch(self, entry: JournalEntry, *, claimed: bool = False) -> bool:
        self.entries.append(entry)
        self.claimed += [entry.command.id] if claimed else []
        return True

    def refill(self) -> None:
        self.refills += 1


class Bench:
    def __init__(self, *, only_pushed: bool = False, **rules) -> None:
        self.clock = FakeClock()
        self.journal = FakeJournal()
        self.dispatcher = FakeDispatcher()
        self.results = 0
        self.service_now: float | None = START_WALL_S
        self.intake = Intake(
            journal=self.journal,
            rules=make_rules(**rules),
            dispatcher=self.dispatcher,
            clock=self.clock,
            service_now=lambda: self.service_now,
            on_finished=self._count,
            only_pushed=only_pushed,
        )

    def take(self, *commands) -> int:
        return self.intake.take(CommandPoll(tuple(commands)))

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if self.service_now is not None:
            self.service_now += seconds

    def dispatched(self) -> list[str]:
        return [entry.command.id for entry in self.dispatcher.entries]

    def _count(self) -> None:
        self.results += 1


def test_a_new_command_is_committed_before_it_is_dispatched():
    bench = Bench()
    bench.take()
    assert bench.take(make_command("c1", status="queued")) == 1
    assert bench.journal.entries["c1"].state is CommandState.RECEIVED
    assert bench.dispatched() == ["c1"]


def test_a_command_whose_lane_is_free_is_started_with_the_commit_that_admits_it():
    bench = Bench()
    bench.take()
    bench.dispatcher.is_free = True
    bench.take(make_command("c1", status="queued"))
    entry = bench.journal.entries["c1"]
    assert (entry.state, entry.attempts) == (CommandState.STARTED, 1)
    assert bench.journal.writes == ["admit", "admit"]
    assert bench.dispatcher.claimed == ["c1"]


def test_a_claimed_lane_is_free_again_when_the_commit_fails():
    bench = Bench()
    bench.dispatcher.is_free = True
    bench.journal.fault = "the disk is full"
    with pytest.raises(StorageError):
        bench.take(make_command("c1", status="queued"))
    assert bench.dispatcher.released == ["c1"]
    assert bench.dispatched() == []


def test_the_same_list_again_changes_nothing():
    bench = Bench()
    command = make_command("c1", status="queued")
    bench.take(command)
    bench.journal.start("c1", bench.clock.now())
    bench.journal.finish("c1", make_outcome(), bench.clock.now())
    assert bench.take(command) == 0
    assert bench.dispatched() == ["c1"]


@pytest.mark.parametrize("contract", list(Contract))
def test_what_a_write_of_unknown_end_admitted_reaches_its_lane_when_it_is_listed_again(contract):
    bench = Bench(contract=contract)
    received, started = make_command("c1", status="queued"), make_command("c2", status="queued")
    bench.journal.admit([make_entry("c1"), make_entry("c2")])
    bench.journal.start("c2", bench.clock.now())
    assert bench.take(received, started) == 0
    # What may run only once stays with the lane that began it, or with the next start.
    assert bench.dispatched() == (["c1", "c2"] if contract is Contract.IDEMPOTENT else ["c1"])


def test_a_command_that_cannot_be_committed_is_not_dispatched():
    bench = Bench()
    bench.journal.fault = "the disk is full"
    with pytest.raises(StorageError):
        bench.take(make_command("c1", status="queued"))
    assert bench.dispatched() == []


def test_a_refused_command_has_its_result_at_once():
    bench = Bench()
    bench.take(make_command("c1", {"command": "nonsense"}, status="queued"))
    assert bench.journal.entries["c1"].state is CommandState.FINISHED
    assert bench.results == 1
    assert bench.dispatched() == []


def test_ten_thousand_old_commands_of_a_plain_server_are_skipped_at_first_contact(caplog):
    caplog.set_level("INFO")
    bench = Bench()
    commands = [make_command(f"old-{number}") for number in range(10_000)]
    assert bench.take(*commands) == 0
    assert bench.take(*commands, make_command("new")) == 1
    assert bench.dispatched() == ["new"]
    assert len([record for record in caplog.records if "commands=skipped" in record.message]) == 1
    assert len(caplog.records) < 10


def test_an_empty_first_list_makes_the_next_command_work():
    bench = Bench()
    bench.take()
    assert bench.take(make_command("first")) == 1


def test_with_a_lost_journal_only_idempotent_commands_run():
    bench = Bench()
    bench.take()
    bench.journal.settings[HISTORY_LOST] = "1"
    bench.take(make_command("c1", status="queued"))
    assert bench.dispatched() == []
    assert "indeterminate" in (bench.journal.entries["c1"].outcome.error or "")


def test_what_the_service_no_longer_lists_is_forgotten_after_a_day():
    bench = Bench()
    bench.journal.admit([make_entry("old", CommandState.REPORTED, received=make_moment(wall_s=START_WALL_S))])
    bench.pass_s(2 * 86_400)
    bench.take()
    assert "old" not in bench.journal.entries


@pytest.mark.parametrize("wall_s", [3 * 86_400.0, START_WALL_S + 50 * 366 * 86_400])
def test_while_nobody_knows_the_time_nothing_is_forgotten_whatever_the_wall_clock_says(wall_s):
    bench = Bench()
    bench.journal.admit([make_entry("old", CommandState.REPORTED, received=make_moment(wall_s=5.0))])
    bench.service_now = None
    bench.clock.set_wall(wall_s)
    bench.take()
    assert "old" in bench.journal.entries


@pytest.mark.parametrize(
    ("contract", "state", "error"),
    [
        (Contract.ONCE, CommandState.FINISHED, "indeterminate"),
        (Contract.IDEMPOTENT, CommandState.STARTED, None),
        (Contract.RESTARTS_DEVICE, CommandState.STARTED, None),
    ],
)
def test_after_a_crash_the_handlers_contract_decides(contract, state, error):
    clock, journal, dispatcher = FakeClock(), FakeJournal(), FakeDispatcher()
    journal.admit([make_entry("c1")])
    journal.start("c1", clock.now())
    clock.advance(5)
    concluded = resume(journal, make_rules(contract=contract), dispatcher, clock, process_started=clock.now())
    entry = journal.entries["c1"]
    assert entry.state is state
    if error is None:
        assert [each.command.id for each in dispatcher.entries] == ["c1"]
        assert concluded == 0
    else:
        assert error in (entry.outcome.error or "")
        assert concluded == 1
    assert dispatcher.refills == 1


class TestForgettingWithPushes:
    DAY_S = 86_400.0

    def reported(self, bench: Bench, command_id: str) -> None:
        bench.take(make_command(command_id, status="queued"))
        bench.journal.start(command_id, bench.clock.now())
        bench.journal.finish(command_id, make_outcome(), bench.clock.now())
        bench.journal.reported([command_id])

    def test_a_push_says_nothing_of_what_it_does_not_name(self):
        bench = Bench()
        self.reported(bench, "c1")
        bench.pass_s(30 * self.DAY_S)
        bench.intake.take(CommandPoll((make_command("c2"),), pushed=True))
        assert set(bench.journal.known(["c1"])) == {"c1"}
        bench.take(make_command("c2"))
        assert bench.journal.known(["c1"]) == {}

    def test_where_only_pushes_come_a_command_is_forgotten_when_none_can_live_as_long(self):
        bench = Bench(only_pushed=True)
        self.reported(bench, "c1")
        bench.pass_s(2.5 * self.DAY_S)
        bench.intake.take(CommandPoll(pushed=True))
        assert set(bench.journal.known(["c1"])) == {"c1"}
        bench.pass_s(self.DAY_S)
        bench.intake.take(CommandPoll(pushed=True))
        assert bench.journal.known(["c1"]) == {}
