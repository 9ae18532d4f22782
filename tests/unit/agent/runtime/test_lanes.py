from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from agent.core.commands import CommandRules, HandlerRule, start_entry
from agent.core.values import Command, CommandState, Contract, JournalEntry, Outcome, OutcomeStatus, Report
from agent.runtime.health import Health
from agent.runtime.intake import resume
from agent.runtime.jig import Jig
from agent.runtime.jobs import Attempt, Ended, JobRunner
from agent.runtime.lanes import Dispatcher, Lane, LaneParts
from tests.factories import make_command, make_entry
from tests.fakes import FakeClock, FakeJournal

SOON_S = 5.0
DONE = Outcome(OutcomeStatus.SUCCEEDED, {"ok": True})


class FakeJob:
    def __init__(self, work: Callable[[Attempt], Outcome], contract=Contract.ONCE, timeout_s: float = 5.0) -> None:
        self.handler = "ping"
        self.contract = contract
        self.timeout_s = timeout_s
        self._work = work

    def run(self, attempt: Attempt) -> Outcome:
        return self._work(attempt)


class InlineRunner:
    """Runs jobs where it is called."""

    def __init__(self) -> None:
        self.stopped = False

    def run(self, job: FakeJob, attempt: Attempt, on_long: Callable[[], None]) -> Ended:
        return Ended(job.run(attempt))

    def stop(self) -> None:
        self.stopped = True


class Bench:
    """A dispatcher whose lanes are jigs."""

    def __init__(self, work=lambda attempt: DONE, *, max_lanes: int = 8, contract=Contract.ONCE, runner=None) -> None:
        self.clock = FakeClock()
        self.journal = FakeJournal()
        self.health = Health(self.clock)
        self.reports: list[Report] = []
        self.results = 0
        self.runs: list[str] = []
        self.verdict: Outcome | None = None
        self.service_now: float | None = None
        self.timeout_s = 5.0
        self.work = work
        self.contract = contract
        self.jigs: dict[str, Jig] = {}
        self.parts = LaneParts(
            journal=self.journal,
            jobs=self,
            runner=runner or InlineRunner(),
            clock=self.clock,
            health=self.health,
            service_now=lambda: self.service_now,
            on_finished=self._count,
            on_progress=self.reports.append,
        )
        names = ("ping", "a", "b", "c")
        self.rules = CommandRules({name: HandlerRule(contract, name) for name in names})
        self.dispatcher = Dispatcher(self.parts, self.rules, self._start, max_lanes)

    def prepare(self, command: Command) -> FakeJob | Outcome:
        if self.verdict is not None:
            return self.verdict

        def work(attempt: Attempt) -> Outcome:
            self.runs.append(attempt.command_id)
            return self.work(attempt)

        return FakeJob(work, self.contract, self.timeout_s)

    def admit(self, *entries: JournalEntry) -> None:
        self.journal.admit(entries)
        for entry in entries:
            self.dispatcher.dispatch(entry)

    def process_all(self) -> None:
        for jig in list(self.jigs.values()):
            jig.process_all()

    def state(self, command_id: str) -> CommandState:
        return self.journal.entries[command_id].state

    def outcome(self, command_id: str) -> Outcome:
        outcome = self.journal.entries[command_id].outcome
        assert outcome is not None
        return outcome

    def _count(self, _finished: JournalEntry) -> None:
        self.results += 1

    def _start(self, lane: Lane) -> Jig:
        self.jigs[lane.name] = Jig(lane, self.clock)
        return self.jigs[lane.name]


def test_a_command_is_journaled_before_and_after_its_handler():
    bench = Bench()
    seen: list[CommandState] = []
    bench.work = lambda attempt: seen.append(bench.state("c1")) or DONE
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert seen == [CommandState.STARTED]
    assert bench.journal.writes == ["admit", "start", "finish"]
    assert bench.outcome("c1") == DONE
    assert bench.results == 1


def test_each_handler_has_a_lane_and_beyond_the_cap_they_share_one():
    bench = Bench(max_lanes=2)
    bench.admit(*(make_entry(f"c-{name}", handler=name) for name in ("a", "b", "c")))
    assert sorted(bench.jigs) == ["lane:a", "lane:b"]
    bench.process_all()
    assert sorted(bench.runs) == ["c-a", "c-b", "c-c"]


def test_a_command_that_is_dispatched_twice_runs_once():
    bench = Bench()
    entry = make_entry("c1")
    bench.admit(entry)
    bench.dispatcher.dispatch(entry)
    bench.process_all()
    bench.dispatcher.dispatch(entry)
    bench.process_all()
    assert bench.runs == ["c1"]


def test_what_does_not_fit_waits_in_the_journal_and_runs_later_in_order():
    bench = Bench()
    entries = [make_entry(f"c{number:03}") for number in range(Lane.capacity + 40)]
    bench.admit(*entries)
    bench.process_all()
    assert bench.runs == [entry.command.id for entry in entries]
    assert not bench.dispatcher.is_busy()


def test_a_command_that_expired_while_it_waited_is_rejected_without_a_run():
    bench = Bench()
    bench.service_now = 2000.0
    bench.admit(make_entry(command=make_command("c1", expires_at=1990.0)))
    bench.process_all()
    assert bench.runs == []
    assert (bench.outcome("c1").error or "").startswith("expired:")


def test_a_payload_that_no_longer_fits_is_rejected_without_a_run():
    bench = Bench()
    bench.verdict = Outcome(OutcomeStatus.REJECTED, error="invalid_payload: x")
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.runs == []
    assert bench.outcome("c1").status is OutcomeStatus.REJECTED


def test_nothing_runs_that_cannot_be_journaled(caplog):
    bench = Bench()
    entry = make_entry("c1")
    bench.journal.admit([entry])
    bench.journal.fault = "the disk is full"
    bench.parts.stopping.set()  # so that the lane does not wait for the disk
    lane = Lane("ping", bench.parts, lambda command_id: None)
    lane._run(entry, is_started=False)
    assert bench.runs == []
    assert bench.state("c1") is CommandState.RECEIVED
    assert "the disk is full" in caplog.text


def test_a_command_that_restarts_the_agent_stays_started_until_the_next_process():
    bench = Bench(contract=Contract.RESTARTS_DEVICE)
    bench.work = lambda attempt: bench.parts.stopping.set() or Outcome(OutcomeStatus.SUCCEEDED)
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.state("c1") is CommandState.STARTED


def test_after_the_restart_its_second_run_concludes_it():
    bench = Bench(contract=Contract.RESTARTS_DEVICE)
    restarted: list[bool] = []
    bench.work = lambda attempt: restarted.append(attempt.restarted) or DONE
    bench.journal.admit([make_entry("c1")])
    bench.journal.start("c1", bench.clock.now())
    bench.dispatcher.dispatch(bench.journal.entries["c1"])
    bench.process_all()
    assert restarted == [True]
    assert bench.outcome("c1") == DONE


def test_a_later_run_that_the_stop_ends_without_a_result_leaves_the_command_open_for_the_next_process():
    bench = Bench(contract=Contract.RESTARTS_DEVICE)
    bench.work = lambda attempt: bench.parts.stopping.set() or Outcome(OutcomeStatus.SUCCEEDED)
    bench.journal.admit([make_entry("c1")])
    bench.journal.start("c1", bench.clock.now())
    bench.dispatcher.dispatch(bench.journal.entries["c1"])
    bench.process_all()
    assert bench.state("c1") is CommandState.STARTED


def test_a_later_run_that_has_a_result_is_concluded_also_while_the_agent_stops():
    bench = Bench(contract=Contract.RESTARTS_DEVICE)
    back = Outcome(OutcomeStatus.SUCCEEDED, {"rebooted": True})
    bench.work = lambda attempt: bench.parts.stopping.set() or back
    bench.journal.admit([make_entry("c1")])
    bench.journal.start("c1", bench.clock.now())
    bench.dispatcher.dispatch(bench.journal.entries["c1"])
    bench.process_all()
    assert bench.outcome("c1") == back


def test_a_restart_that_does_not_come_is_a_failure():
    bench = Bench(contract=Contract.RESTARTS_DEVICE)
    bench.timeout_s = 0.01
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert (bench.outcome("c1").error or "").startswith("no_restart:")


def test_once_the_agent_stops_no_further_command_begins():
    bench = Bench()
    bench.admit(make_entry("c1"))
    bench.dispatcher.stop()
    bench.process_all()
    assert bench.runs == []
    assert bench.state("c1") is CommandState.RECEIVED


def test_progress_goes_to_the_uplink():
    bench = Bench(lambda attempt: attempt.report_progress({"percent": 50}) or DONE)
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert [(report.status, report.result) for report in bench.reports] == [("in_progress", {"percent": 50})]


class TestJobRunner:
    def attempt(self) -> Attempt:
        return Attempt("c1", 1, restarted=False, stopping=threading.Event(), report_progress=lambda result: None)

    def test_a_job_that_ends_in_time_gives_its_outcome(self):
        runner = JobRunner(stop_grace_s=1)
        assert runner.run(FakeJob(lambda attempt: DONE), self.attempt(), pytest.fail) == Ended(DONE)

    def test_jobs_after_one_another_share_a_thread_that_the_stop_ends(self):
        runner = JobRunner(stop_grace_s=1)
        threads: list[threading.Thread] = []
        job = FakeJob(lambda attempt: threads.append(threading.current_thread()) or DONE)
        waiting = threading.Event()
        rest = runner._may_rest
        runner._may_rest = lambda worker: rest(worker) and (waiting.set() or True)
        for _ in range(2):
            waiting.clear()
            runner.run(job, self.attempt(), pytest.fail)
            assert waiting.wait(SOON_S)
        assert threads[0] is threads[1]
        assert threads[0].name == "run:ping"
        runner.stop()
        threads[0].join(SOON_S)
        assert not threads[0].is_alive()

    def test_a_job_that_raises_anything_at_all_fails(self):
        def work(attempt: Attempt) -> Outcome:
            raise SystemExit(3)

        ended = JobRunner(stop_grace_s=1).run(FakeJob(work), self.attempt(), pytest.fail)
        assert ended.outcome is not None
        assert (ended.outcome.error or "").startswith("handler_error: SystemExit")

    def test_a_hung_job_fails_at_its_timeout_and_its_thread_is_known(self):
        leave = threading.Event()
        job = FakeJob(lambda attempt: leave.wait(SOON_S) and DONE, timeout_s=0.02)
        attempt = self.attempt()
        ended = JobRunner(stop_grace_s=1, unwind_s=0.01).run(job, attempt, pytest.fail)
        assert ended.outcome is not None
        assert (ended.outcome.error or "").startswith("timeout: 'ping' ran longer than 0.02 s and has not returned")
        assert attempt.stopping.is_set()
        assert ended.hung is not None
        assert ended.hung.is_alive()
        leave.set()
        ended.hung.join(SOON_S)

    def test_a_job_that_heeds_stopping_is_a_timeout_without_a_hung_thread(self):
        job = FakeJob(lambda attempt: attempt.stopping.wait(SOON_S) and DONE, timeout_s=0.02)
        ended = JobRunner(stop_grace_s=1, unwind_s=SOON_S).run(job, self.attempt(), pytest.fail)
        assert ended.hung is None
        assert ended.outcome is not None
        assert ended.outcome.status is OutcomeStatus.FAILED
        assert ended.outcome.result == {"ok": True}

    def test_a_long_job_tells_once_that_it_is_under_way(self):
        told = threading.Event()
        job = FakeJob(lambda attempt: told.wait(SOON_S) and DONE, timeout_s=SOON_S)
        runner = JobRunner(stop_grace_s=1, progress_after_s=0.01)
        assert runner.run(job, self.attempt(), told.set).outcome == DONE

    def test_at_the_stop_a_job_that_ends_within_the_grace_is_concluded(self):
        runner = JobRunner(stop_grace_s=SOON_S)
        job = FakeJob(lambda attempt: runner.stop() or (attempt.stopping.wait(SOON_S) and DONE))
        assert runner.run(job, self.attempt(), pytest.fail).outcome == DONE

    def test_at_the_stop_a_job_that_goes_on_is_left_for_the_next_start(self):
        leave = threading.Event()
        runner = JobRunner(stop_grace_s=0.01)
        job = FakeJob(lambda attempt: runner.stop() or (leave.wait(SOON_S) and DONE))
        ended = runner.run(job, self.attempt(), pytest.fail)
        assert ended.outcome is None
        leave.set()
        assert ended.hung is not None
        ended.hung.join(SOON_S)


def test_a_hung_handler_blocks_its_lane_only_and_the_lane_frees_itself():
    leave = threading.Event()
    runner = JobRunner(stop_grace_s=0.01, unwind_s=0.01)
    bench = Bench(runner=runner)
    bench.timeout_s = 0.03
    bench.work = lambda attempt: leave.wait(SOON_S) and DONE if attempt.command_id == "hangs" else DONE

    class RealClock(FakeClock):
        def now(self):
            return self.advance(0.02)  # each look at the clock takes a while, so waiting ends

    bench.parts.clock = RealClock()
    bench.admit(make_entry("hangs", handler="a"), make_entry("next", handler="a"), make_entry("other", handler="b"))
    bench.process_all()
    assert (bench.outcome("hangs").error or "").startswith("timeout:")
    assert (bench.outcome("next").error or "").startswith("lane_blocked:")
    assert bench.outcome("other") == DONE
    assert bench.health.parts()["lane:a"].state == "blocked"
    leave.set()
    lane = bench.jigs["lane:a"].actor
    assert isinstance(lane, Lane)
    assert lane._hung is not None
    lane._hung.join(SOON_S)
    bench.admit(make_entry("later", handler="a"))
    bench.process_all()
    assert bench.outcome("later") == DONE
    assert bench.health.parts()["lane:a"].state == "ok"


# --- admitted and started with one commit -----------------------------------------------------------------------------


def claim(bench: Bench, command_id: str) -> bool:
    """Do as the intake does with a new command."""
    entry = make_entry(command_id)
    if not bench.dispatcher.claim(entry):
        return False
    bench.journal.admit([start_entry(entry, bench.clock.now())])
    return bench.dispatcher.dispatch(entry, claimed=True)


def test_a_claimed_command_runs_as_its_first_attempt_without_another_commit():
    bench = Bench(contract=Contract.IDEMPOTENT)
    attempts: list[tuple[int, bool]] = []
    bench.work = lambda attempt: attempts.append((attempt.number, attempt.restarted)) or DONE
    assert claim(bench, "c1")
    bench.process_all()
    assert attempts == [(1, False)]
    assert bench.journal.writes == ["admit", "finish"]


def test_only_a_free_lane_can_be_claimed():
    bench = Bench(contract=Contract.IDEMPOTENT)
    assert claim(bench, "c1")
    assert not claim(bench, "c2")
    bench.process_all()
    assert claim(bench, "c3")


@pytest.mark.parametrize("contract", [Contract.ONCE, Contract.RESTARTS_DEVICE])
def test_a_command_that_a_crash_would_conclude_without_a_run_is_never_started_early(contract):
    assert not Bench(contract=contract).dispatcher.claim(make_entry("c1"))


def test_a_released_lane_can_be_claimed_again():
    bench = Bench(contract=Contract.IDEMPOTENT)
    assert bench.dispatcher.claim(make_entry("c1"))
    bench.dispatcher.release(["c1"])
    assert bench.dispatcher.claim(make_entry("c2"))


def test_what_comes_in_between_leaves_room_for_a_claimed_command():
    bench = Bench(contract=Contract.IDEMPOTENT)
    claimed = make_entry("claimed")
    assert bench.dispatcher.claim(claimed)
    others = [make_entry(f"c{number}") for number in range(2 * Lane.capacity)]
    bench.admit(*others)
    bench.journal.admit([start_entry(claimed, bench.clock.now())])
    assert bench.dispatcher.dispatch(claimed, claimed=True)
    bench.process_all()
    bench.process_all()
    bench.process_all()
    assert sorted(bench.runs) == sorted(["claimed", *(entry.command.id for entry in others)])


def test_a_command_that_the_stop_caught_between_commit_and_run_runs_at_the_next_start():
    bench = Bench(contract=Contract.IDEMPOTENT)
    assert claim(bench, "c1")
    bench.parts.stopping.set()
    bench.process_all()
    assert bench.runs == []
    after = Bench(contract=Contract.IDEMPOTENT)
    after.journal = after.parts.journal = bench.journal
    resume(after.journal, after.rules, after.dispatcher, after.clock, after.clock.now())
    after.process_all()
    assert after.runs == ["c1"]
    assert after.outcome("c1") == DONE
