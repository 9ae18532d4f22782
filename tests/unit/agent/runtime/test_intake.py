from __future__ import annotations

from collections.abc import Iterable

import pytest

from agent.adapters.records import read_records
from agent.core.commands import HISTORY_LOST, HandlerRule
from agent.core.triage import CommandRules
from agent.core.values import CommandPoll, CommandState, Contract, JournalEntry
from agent.errors import StorageError
from agent.runtime.dispatcher import Cancels
from agent.runtime.intake import Intake, resume
from agent.wire.commands import CommandRecord
from tests.factories import make_command, make_entry, make_moment, make_outcome, make_rules
from tests.fakes import START_WALL_S, FakeClock, FakeJournal


class FakeDispatcher:
    def __init__(self, journal: FakeJournal) -> None:
        self.cancels = Cancels(journal)
        self.entries: list[JournalEntry] = []
        self.verified: list[str] = []
        self.canceled: list[tuple[str, str]] = []
        self.in_lanes: dict[str, int] = {}
        self.refills = 0
        self.is_free = False
        self.claimed: list[str] = []
        self.released: list[str] = []

    def claim(self, entry: JournalEntry) -> bool:
        return self.is_free

    def release(self, command_ids: Iterable[str]) -> None:
        self.released += command_ids

    def waiting(self) -> dict[str, int]:
        return self.in_lanes

    def cancel(self, command_id: str, why: str) -> str:
        self.canceled.append((command_id, why))
        return "running"

    def resume_canceled(self, entry: JournalEntry, why: str) -> None:
        self.canceled.append((entry.command.id, why))
        self.dispatch(entry, verify=True)

    def dispatch(self, entry: JournalEntry, *, claimed: bool = False, verify: bool = False) -> bool:
        self.entries.append(entry)
        self.verified += [entry.command.id] if verify else []
        self.claimed += [entry.command.id] if claimed else []
        return True

    def refill(self) -> None:
        self.refills += 1


class Bench:
    def __init__(self, *, only_pushed: bool = False, **rules) -> None:
        self.clock = FakeClock()
        self.journal = FakeJournal()
        self.dispatcher = FakeDispatcher(self.journal)
        self.results = 0
        self.knows_time = True
        self.intake = Intake(
            journal=self.journal,
            rules=make_rules(**rules),
            dispatcher=self.dispatcher,
            clock=self.clock,
            service_now=lambda: self.clock.now().wall_s if self.knows_time else None,
            on_finished=self._count,
            only_pushed=only_pushed,
        )

    def take(self, *commands) -> int:
        return self.intake.take(CommandPoll(tuple(commands)))

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
    assert bench.journal.writes.count("admit") == 2
    assert "start" not in bench.journal.writes
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
    # News like any other: the next command must not come later because this one was wrong.
    assert bench.take(make_command("c1", {"command": "nonsense"}, status="queued")) == 1
    assert bench.take(make_command("c1", {"command": "nonsense"}, status="queued")) == 0
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


def test_a_flood_of_refused_commands_is_a_few_lines(caplog):
    caplog.set_level("INFO")
    bench = Bench()
    flood = [make_command(f"c{number}", {"command": "nonsense"}, status="queued") for number in range(10_000)]
    assert bench.take(*flood) == 10_000
    assert len(caplog.records) <= 25
    assert "commands=rejected count=9980 more" in caplog.text
    assert len(bench.journal.entries) == 10_000


def test_what_comes_out_of_the_middle_of_a_list_that_was_too_long_is_not_taken_for_new():
    bench = Bench()
    listed = [make_command("first"), make_command("last")]
    bench.intake.take(CommandPoll(tuple(listed), omitted=1000))
    # The service purges the first ones: what was never looked at comes into sight.
    middle, dated, opened = (
        make_command("old"),
        make_command("new", created_at=START_WALL_S + 1),
        make_command("o", status="queued"),
    )
    assert bench.intake.take(CommandPoll((middle, dated, opened, *listed), omitted=997)) == 2
    assert bench.take(middle, dated, opened, *listed) == 0
    assert bench.dispatched() == ["new", "o"] * 2  # and again, as what is listed and waits in no lane
    assert "old" not in bench.journal.entries


def test_a_list_that_was_cut_makes_nothing_be_forgotten():
    bench = Bench()
    bench.take()
    bench.take(make_command("c1", status="queued"))
    bench.journal.start("c1", bench.clock.now())
    bench.journal.finish("c1", make_outcome(), bench.clock.now())
    bench.journal.reported(["c1"])
    for _ in range(48):
        bench.clock.advance(3600)
        bench.intake.take(CommandPoll((), omitted=1))
    assert "c1" in bench.journal.entries


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


def test_with_a_lost_journal_a_handler_that_can_tell_is_asked():
    bench = Bench()
    bench.intake._rules = CommandRules({"ping": HandlerRule(Contract.ONCE, "ping", verifies=True)})
    bench.journal.settings[HISTORY_LOST] = "1"
    bench.take(make_command("c1", status="queued"))
    assert bench.dispatcher.verified == ["c1"]
    assert bench.journal.entries["c1"].state is CommandState.STARTED


def test_a_lane_that_is_full_refuses_the_next_command():
    bench = Bench(max_waiting_per_lane=2)
    bench.take()
    bench.dispatcher.in_lanes = {"ping": 1}
    assert bench.take(*(make_command(f"c{number}", status="queued") for number in range(3))) == 3
    assert bench.dispatched() == ["c0"]
    assert bench.journal.entries["c1"].outcome is not None
    assert (bench.journal.entries["c1"].outcome.error or "").startswith("too_many_waiting: ")
    assert bench.results == 1


def test_a_command_under_way_that_is_listed_as_canceled_is_canceled():
    bench = Bench()
    bench.take(make_command("c1", status="queued"))
    bench.take(make_command("c1", status="canceled"), make_command("never seen", status="canceled"))
    assert bench.dispatcher.canceled == [("c1", "by the service")]


@pytest.mark.parametrize(
    ("contract", "state", "error"),
    [
        (Contract.ONCE, CommandState.FINISHED, "indeterminate"),
        (Contract.IDEMPOTENT, CommandState.STARTED, None),
        (Contract.RESTARTS_DEVICE, CommandState.STARTED, None),
    ],
)
def test_after_a_crash_the_handlers_contract_decides(contract, state, error):
    clock, journal = FakeClock(), FakeJournal()
    dispatcher = FakeDispatcher(journal)
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


@pytest.mark.parametrize(
    ("contract", "dispatched", "error"),
    [(Contract.ONCE, ["c1"], None), (Contract.IDEMPOTENT, [], "canceled: by command 9, while it ran")],
)
def test_a_cancel_is_remembered_over_a_crash(contract, dispatched, error):
    clock, journal = FakeClock(), FakeJournal()
    journal.admit([make_entry("c1")])
    journal.start("c1", clock.now())
    before = Cancels(journal)
    before.add("c1", "by command 9")
    before.add("long over", "by command 8")
    clock.advance(5)
    rules = CommandRules({"ping": HandlerRule(contract, "ping", verifies=True)})
    dispatcher = FakeDispatcher(journal)
    resume(journal, rules, dispatcher, clock, process_started=clock.now())
    assert dispatcher.verified == dispatched
    outcome = journal.entries["c1"].outcome
    assert (None if outcome is None else outcome.error) == error
    # What it still needs is kept, and nothing else.
    assert Cancels(journal).load() == ({} if error else {"c1": "by command 9"})


def test_a_pushed_record_that_says_canceled_takes_the_command_back():
    bench = Bench()
    bench.take(make_command("c1", status="queued"))
    bench.intake.take(CommandPoll((make_command("c1", status="canceled"),), pushed=True))
    assert bench.dispatcher.canceled == [("c1", "by the service")]


def test_commands_without_an_id_are_told_apart_by_content_and_time():
    def listed(*records: dict) -> tuple:
        found, malformed = read_records([CommandRecord.receive(record) for record in records], "d1")
        assert malformed == ()
        return found

    bench = Bench()
    bench.take()
    at = {"created_at": "2026-01-01T00:00:00Z"}
    payload = {"command": "ping", "echo": {"a": 1, "b": 2}}
    turned = {"echo": {"b": 2, "a": 1}, "command": "ping"}
    assert bench.take(*listed({"command_payload": payload, **at})) == 1
    # The same again, whatever the order of its members: after a restart of either side, for ever.
    for _ in range(3):
        assert bench.take(*listed({"command_payload": turned, **at}, {"command_payload": payload, **at})) == 0
    later = {"command_payload": payload, "created_at": "2026-01-01T00:00:00.001Z"}
    other = {"command_payload": {**payload, "echo": 3}, **at}
    assert bench.take(*listed(later, other, {"command_payload": payload, **at})) == 2
    assert len(set(bench.dispatched())) == 3


class TestForgetting:
    """An id is remembered for as long as the service lists it, and a day more."""

    DAY_S = 86_400.0

    def reported(self, bench: Bench, command_id: str, **members) -> None:
        bench.take(make_command(command_id, **{"status": "queued", **members}))
        bench.journal.start(command_id, bench.clock.now())
        bench.journal.finish(command_id, make_outcome(), bench.clock.now())
        bench.journal.reported([command_id])

    def restarted(self, bench: Bench) -> Bench:
        after = Bench()
        after.clock, after.journal = bench.clock, bench.journal
        after.intake = Intake(
            journal=bench.journal,
            rules=make_rules(),
            dispatcher=after.dispatcher,
            clock=bench.clock,
            service_now=lambda: bench.clock.now().wall_s,
            on_finished=lambda: None,
        )
        return after

    def test_what_was_in_no_list_for_a_whole_day_is_forgotten(self):
        bench = Bench()
        self.reported(bench, "old")
        bench.take()
        for _ in range(48):
            bench.clock.advance(3600)
            bench.take()
        assert "old" not in bench.journal.entries

    def test_lists_whose_pages_are_missing_forget_nothing_however_long(self):
        bench = Bench()
        self.reported(bench, "old")
        bench.take()
        for _ in range(48):
            bench.clock.advance(3600)
            bench.intake.take(CommandPoll((), is_whole=False))
        assert "old" in bench.journal.entries

    def test_one_empty_list_forgets_nothing_however_old_the_command_is(self):
        bench = Bench()
        command = make_command("old")
        bench.take()
        self.reported(bench, "old", status=None)
        for _ in range(30):
            bench.clock.advance(self.DAY_S / 2)
            bench.take(command)
            bench.take()
            assert bench.take(command) == 0
        assert bench.dispatched() == ["old"]

    def test_a_plain_server_that_lists_for_ever_never_makes_a_command_run_twice(self):
        bench = Bench()
        bench.take()
        commands = [make_command(f"c{number}") for number in range(150)]
        for command in commands:
            self.reported(bench, command.id, status=None)
        for _ in range(20):
            bench.clock.advance(self.DAY_S)
            assert bench.take(*commands) == 0
        assert len(bench.dispatched()) == len(commands)

    def test_a_device_that_is_switched_off_every_night_forgets_too(self):
        bench = Bench()
        self.reported(bench, "old")
        for boot in range(4):
            bench.clock.advance(self.DAY_S / 2)
            bench.clock.reboot(f"night-{boot}")
            bench = self.restarted(bench)
            bench.take()
        assert "old" not in bench.journal.entries

    def test_what_was_listed_before_the_restart_counts_after_it(self):
        bench = Bench()
        bench.take()
        self.reported(bench, "old", status=None)
        bench.take(make_command("old"))
        bench.clock.advance(self.DAY_S)
        bench.take(make_command("old"))
        bench.clock.advance(self.DAY_S / 2)
        bench = self.restarted(bench)
        bench.take()  # cut short by mistake
        bench.clock.advance(self.DAY_S / 2 + 1)
        bench.take()
        assert "old" in bench.journal.entries
        assert bench.take(make_command("old")) == 0

    @pytest.mark.parametrize("jump_s", [50 * 365 * DAY_S, -2 * DAY_S])
    def test_a_wall_clock_that_jumps_forgets_nothing_that_was_listed_today(self, jump_s):
        bench = Bench()
        self.reported(bench, "old")
        bench.take()
        bench.clock.set_wall(bench.clock.now().wall_s + jump_s)
        bench.take()
        assert "old" in bench.journal.entries

    def test_a_clock_that_was_never_set_forgets_nothing(self):
        bench = Bench()
        bench.journal.admit([make_entry("old", CommandState.REPORTED, received=make_moment(wall_s=5.0))])
        for day in range(1, 5):
            bench.clock.set_wall(day * self.DAY_S)
            bench.take()
        assert "old" in bench.journal.entries

    def test_a_journal_that_fails_forgets_nothing_and_the_next_list_tries_again(self):
        bench = Bench()
        bench.take()
        self.reported(bench, "old")
        bench.clock.advance(self.DAY_S)
        bench.take()
        bench.clock.advance(self.DAY_S)
        bench.journal.fault = "the disk is full"
        with pytest.raises(StorageError):
            bench.take()
        bench.journal.fault = None
        bench.take()
        assert "old" not in bench.journal.entries


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
        bench.clock.advance(30 * self.DAY_S)
        bench.intake.take(CommandPoll((make_command("c2"),), pushed=True))
        assert set(bench.journal.known(["c1"])) == {"c1"}

    def test_where_only_pushes_come_a_command_is_forgotten_when_none_can_live_as_long(self):
        bench = Bench(only_pushed=True)
        self.reported(bench, "c1")
        bench.clock.advance(2.5 * self.DAY_S)
        bench.intake.take(CommandPoll(pushed=True))
        assert set(bench.journal.known(["c1"])) == {"c1"}
        bench.clock.advance(self.DAY_S)
        bench.intake.take(CommandPoll(pushed=True))
        assert bench.journal.known(["c1"]) == {}
