from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent.core.commands import HandlerRule, RunLimits, start_entry
from agent.core.triage import CommandRules
from agent.core.values import Command, CommandState, Contract, JournalEntry, Moment, Outcome, OutcomeStatus, Report
from agent.runtime import jobs
from agent.runtime.dispatcher import Dispatcher
from agent.runtime.health import Health
from agent.runtime.intake import resume
from agent.runtime.jobs import Attempt, Ended, Job, JobRunner
from agent.runtime.lanes import Lane, LaneItem, LaneParts
from tests.factories import make_command, make_entry
from tests.fakes import FakeClock, FakeJournal
from tests.threadless import ThreadlessService

SOON_S = 60.0
DONE = Outcome(OutcomeStatus.SUCCEEDED, {"ok": True})


class FakeJob:
    def __init__(
        self,
        work: Callable[[Attempt], Outcome],
        contract=Contract.ONCE,
        timeout_s: float = SOON_S,
        *,
        inactivity_s: float | None = None,
        unwind_s: float = 0.01,
        verify: Callable[[Attempt], Outcome | None] | None = None,
    ) -> None:
        self.handler = "ping"
        self.contract = contract
        self.limits = RunLimits(timeout_s, inactivity_s)
        self.unwind_s = unwind_s
        self._work = work
        self._verify = verify

    def run(self, attempt: Attempt) -> Outcome:
        return self._work(attempt)

    def verify(self, attempt: Attempt) -> Outcome | None:
        assert self._verify is not None
        return self._verify(attempt)


class InlineRunner:
    """Runs jobs where it is called."""

    def __init__(self) -> None:
        self.stopped = False

    def run(self, job: Job, attempt: Attempt, on_long: Callable[[], None]) -> Ended:
        try:
            return Ended(job.run(attempt))
        except ValueError as error:
            return Ended(Outcome(OutcomeStatus.FAILED, None, f"handler_error: {error}"))

    def stop(self) -> None:
        self.stopped = True


class Bench:
    """A dispatcher whose lanes are services."""

    def __init__(
        self, work=lambda attempt: DONE, *, max_lanes: int = 8, contract=Contract.ONCE, runner=None, verify=None, **rule
    ) -> None:
        self.clock = FakeClock()
        self.journal = FakeJournal()
        self.health = Health(self.clock)
        self.reports: list[Report] = []
        self.results = 0
        self.runs: list[str] = []
        self.verdict: Outcome | None = None
        self.service_now: float | None = None
        self.timeout_s = SOON_S
        self.work = work
        self.verify = verify
        self.contract = contract
        self.services: dict[str, ThreadlessService] = {}
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
        names = ("ping", "a", "b", "c", "cancel")
        members = {"verifies": verify is not None, **rule}
        self.rules = CommandRules({name: HandlerRule(contract, name, **members) for name in names})
        self.dispatcher = Dispatcher(self.parts, self.rules, self._start, max_lanes)

    def prepare(self, command: Command) -> FakeJob | Outcome:
        if self.verdict is not None:
            return self.verdict

        def work(attempt: Attempt) -> Outcome:
            self.runs.append(attempt.command_id)
            return self.work(attempt)

        return FakeJob(work, self.contract, self.timeout_s, verify=self.verify)

    def admit(self, *entries: JournalEntry) -> None:
        self.journal.admit(entries)
        for entry in entries:
            self.dispatcher.dispatch(entry)

    def process_all(self) -> None:
        for driven in list(self.services.values()):
            driven.process_all()

    def state(self, command_id: str) -> CommandState:
        return self.journal.entries[command_id].state

    def outcome(self, command_id: str) -> Outcome:
        outcome = self.journal.entries[command_id].outcome
        assert outcome is not None
        return outcome

    def _count(self, _finished: JournalEntry) -> None:
        self.results += 1

    def _start(self, lane: Lane) -> ThreadlessService:
        self.services[lane.name] = ThreadlessService(lane, self.clock)
        return self.services[lane.name]


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
    assert sorted(bench.services) == ["lane:a", "lane:b"]
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


@pytest.mark.parametrize("is_verified", [False, True])
def test_a_command_that_expired_while_its_start_was_written_does_not_run(is_verified):
    """The disk is full for an hour, or the process stands still between the two."""
    bench = Bench(verify=lambda _attempt: None) if is_verified else Bench()
    bench.service_now = 1980.0
    write = bench.journal.start

    def slow(command_id: str, at: Moment) -> None:
        write(command_id, at)
        bench.service_now = 2000.0

    entry = make_entry(command=make_command("c1", expires_at=1990.0))
    bench.journal.admit([entry])
    if is_verified:
        bench.journal.start("c1", bench.clock.now())
    bench.journal.start = slow  # type: ignore[method-assign]
    bench.dispatcher.dispatch(bench.journal.entries["c1"], verify=is_verified)
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
    Lane("ping", bench.parts, bench.dispatcher)._take(LaneItem(entry, "ping"))
    assert bench.runs == []
    assert bench.state("c1") is CommandState.RECEIVED
    assert "the disk is full" in caplog.text


def test_an_outcome_whose_failed_write_is_there_after_all_is_taken_as_written():
    bench = Bench()

    def work(attempt: Attempt) -> Outcome:
        bench.journal.finish(attempt.command_id, DONE, bench.clock.now())
        return DONE

    bench.work = work
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert (bench.state("c1"), bench.results) == (CommandState.FINISHED, 1)


def test_an_outcome_that_a_replaced_journal_no_longer_knows_does_not_take_the_lane_down(caplog):
    bench = Bench()

    def work(attempt: Attempt) -> Outcome:
        bench.journal.entries.pop("c1", None)
        return DONE

    bench.work = work
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert "c1" in caplog.text
    bench.admit(make_entry("c2"))
    bench.process_all()
    assert bench.state("c2") == CommandState.FINISHED


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

    def test_each_job_has_a_thread_of_its_own_that_ends_with_it(self):
        runner = JobRunner(stop_grace_s=1)
        threads: list[threading.Thread] = []
        job = FakeJob(lambda attempt: threads.append(threading.current_thread()) or DONE)
        for _ in range(2):
            runner.run(job, self.attempt(), pytest.fail)
        assert [thread.name for thread in threads] == ["run:ping", "run:ping"]
        for thread in threads:
            thread.join(SOON_S)
            assert not thread.is_alive()

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
        ended = JobRunner(stop_grace_s=1).run(job, attempt, pytest.fail)
        assert ended.outcome is not None
        assert (ended.outcome.error or "").startswith("timeout: 'ping' ran longer than 0.02 s; it has not returned")
        assert attempt.stopping.is_set()
        assert ended.hung is not None
        assert ended.hung.is_alive()
        leave.set()
        ended.hung.join(SOON_S)

    def test_a_job_that_heeds_stopping_is_a_timeout_without_a_hung_thread(self):
        job = FakeJob(lambda attempt: attempt.stopping.wait(SOON_S) and DONE, timeout_s=0.02, unwind_s=SOON_S)
        ended = JobRunner(stop_grace_s=1).run(job, self.attempt(), pytest.fail)
        assert ended.hung is None
        assert ended.outcome is not None
        assert ended.outcome.status is OutcomeStatus.FAILED
        assert ended.outcome.result == {"ok": True}

    @pytest.mark.parametrize("late_s", [SOON_S + 1, 10 * SOON_S])
    def test_a_lane_that_was_held_up_for_longer_than_the_limit_finds_a_job_that_has_ended(self, monkeypatch, late_s):
        now_s = 0.0
        monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: now_s))
        runner, may_end = JobRunner(stop_grace_s=1, progress_after_s=0.01), threading.Event()

        def be_held_up() -> None:
            nonlocal now_s
            (run,) = runner._runs
            may_end.set()
            run.join(SOON_S)
            now_s = late_s

        attempt = replace(self.attempt(), look=be_held_up)
        job = FakeJob(lambda attempt: may_end.wait(SOON_S) and DONE, timeout_s=SOON_S, inactivity_s=SOON_S / 2)
        assert runner.run(job, attempt, lambda: None) == Ended(DONE)

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
    runner = JobRunner(stop_grace_s=0.01)
    bench = Bench(runner=runner)
    bench.timeout_s = 0.03
    bench.work = lambda attempt: leave.wait(SOON_S) and DONE if attempt.command_id == "hangs" else DONE

    class RealClock(FakeClock):
        def now(self):
            return self.advance(0.02)  # each look at the clock takes a while, so waiting ends

    bench.parts.clock = RealClock()
    bench.admit(make_entry("hangs", handler="a"), make_entry("next", handler="a"))
    bench.process_all()
    assert (bench.outcome("hangs").error or "").startswith("timeout:")
    assert (bench.outcome("next").error or "").startswith("lane_blocked:")
    bench.timeout_s = SOON_S  # what does not hang may be slow, on a busy machine
    bench.admit(make_entry("other", handler="b"))
    bench.process_all()
    assert bench.outcome("other") == DONE
    assert bench.health.parts()["lane:a"].state == "blocked"
    leave.set()
    lane = bench.services["lane:a"].actor
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


# --- limits, and signs of life --------------------------------------------------------------------------------------


class TestLimits:
    attempt = TestJobRunner.attempt

    def test_a_run_without_a_sign_of_life_ends_as_inactive(self):
        job = FakeJob(lambda attempt: attempt.stopping.wait(SOON_S) and DONE, inactivity_s=0.02, unwind_s=SOON_S)
        ended = JobRunner(stop_grace_s=1).run(job, self.attempt(), pytest.fail)
        assert ended.outcome is not None
        assert (ended.outcome.error or "").startswith("inactive: 'ping' gave no sign of life for 0.02 s")

    def test_signs_of_life_keep_a_run_going(self, monkeypatch):
        now_s, looked = [0.0], threading.Event()
        monkeypatch.setattr("agent.runtime.jobs.time", SimpleNamespace(monotonic=lambda: now_s[0]))

        def work(attempt: Attempt) -> Outcome:
            for _ in range(8):
                now_s[0] += 0.04
                attempt.life.give()
                looked.clear()
                assert looked.wait(SOON_S)
            return Outcome(OutcomeStatus.FAILED) if attempt.stopping.is_set() else DONE

        # Beyond the inactivity timeout as a whole, and below it from one sign to the next.
        job = FakeJob(work, timeout_s=SOON_S, inactivity_s=0.05, unwind_s=SOON_S)
        attempt = replace(self.attempt(), look=looked.set)
        assert JobRunner(stop_grace_s=1, progress_after_s=SOON_S).run(job, attempt, pytest.fail).outcome == DONE

    def test_what_the_handler_says_about_its_end_is_part_of_the_reason(self):
        def work(attempt: Attempt) -> Outcome:
            attempt.stopping.wait(SOON_S)
            return Outcome(OutcomeStatus.FAILED, None, "stopped: the valve is half open")

        ended = JobRunner(stop_grace_s=1).run(
            FakeJob(work, timeout_s=0.02, unwind_s=SOON_S), self.attempt(), pytest.fail
        )
        assert ended.outcome is not None
        assert (ended.outcome.error or "").endswith("ran longer than 0.02 s; stopped: the valve is half open")


# --- cancel -----------------------------------------------------------------------------------------------------------


def cancelling(bench: Bench, command_id: str) -> Callable[[Attempt], Outcome]:
    """A handler that is canceled while it runs, and heeds it."""

    def work(attempt: Attempt) -> Outcome:
        bench.found.append(bench.dispatcher.cancel(command_id, "by command 9"))
        return Outcome(OutcomeStatus.SUCCEEDED, {"opened": attempt.stopping.wait(SOON_S)})

    return work


class CancelBench(Bench):
    def __init__(self, **members) -> None:
        super().__init__(**members)
        self.found: list[str] = []


def test_a_command_that_is_canceled_while_it_waits_never_runs_also_after_a_crash():
    bench = CancelBench()
    bench.admit(make_entry("c1"))
    assert bench.dispatcher.cancel("c1", "by command 9") == "waiting"
    # The journal has it already: were the power cut now, nothing would run.
    assert bench.outcome("c1") == Outcome(OutcomeStatus.REJECTED, None, "canceled: by command 9, before it began")
    bench.process_all()
    assert bench.runs == []
    assert bench.results == 1


def test_a_claimed_command_that_is_canceled_before_its_lane_comes_to_it_never_runs():
    bench = CancelBench(contract=Contract.IDEMPOTENT)
    assert claim(bench, "c1")
    assert bench.dispatcher.cancel("c1", "by command 9") == "waiting"
    bench.process_all()
    assert bench.runs == []
    assert (bench.outcome("c1").error or "").startswith("canceled: ")
    assert bench.results == 1


def test_a_command_that_is_canceled_while_it_runs_is_told_to_end_and_keeps_what_it_had_done():
    bench = CancelBench(runner=JobRunner(stop_grace_s=0.01))
    bench.work = cancelling(bench, "c1")
    bench.parts.jobs = Unhurried(bench)
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.found == ["running"]
    assert bench.outcome("c1") == Outcome(
        OutcomeStatus.FAILED, {"opened": True}, "canceled: by command 9, while it ran"
    )
    # Remembered while it had no outcome, and no longer.
    assert "canceled" not in bench.journal.settings
    assert bench.journal.writes.count("put_setting") == 2


class Unhurried:
    """Jobs that get all the time they want to unwind."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def prepare(self, command: Command) -> FakeJob | Outcome:
        job = self._bench.prepare(command)
        assert isinstance(job, FakeJob)
        job.unwind_s = SOON_S
        return job


def test_a_canceled_command_whose_handler_has_not_begun_is_not_begun():
    bench = CancelBench(runner=JobRunner(stop_grace_s=0.01))
    entry = make_entry("c1")
    bench.journal.admit([entry])
    start = bench.journal.start

    def start_and_cancel(command_id, at):
        start(command_id, at)
        bench.found.append(bench.dispatcher.cancel("c1", "by command 9"))

    bench.journal.start = start_and_cancel
    bench.dispatcher.dispatch(entry)
    bench.process_all()
    assert bench.found == ["running"]
    assert bench.runs == []
    assert (bench.outcome("c1").error or "").startswith("canceled: ")


@pytest.mark.parametrize(
    ("state", "found"),
    [(CommandState.FINISHED, "over"), (CommandState.REPORTED, "over"), (CommandState.SKIPPED, "over")],
)
def test_a_command_that_is_over_stays_as_it_is(state, found):
    bench = CancelBench()
    bench.journal.admit([make_entry("c1", state)])
    assert bench.dispatcher.cancel("c1", "by command 9") == found
    assert bench.state("c1") is state


def test_a_command_that_nobody_knows_is_unknown():
    assert CancelBench().dispatcher.cancel("c1", "by command 9") == "unknown"


def test_a_command_that_waits_in_the_journal_alone_is_canceled_too():
    bench = CancelBench()
    bench.admit(*(make_entry(f"c{number}") for number in range(Lane.capacity + 1)))
    last = f"c{Lane.capacity}"
    assert bench.dispatcher.cancel(last, "by command 9") == "waiting"
    bench.process_all()
    bench.process_all()
    assert last not in bench.runs
    assert len(bench.runs) == Lane.capacity


def test_the_lane_of_cancel_is_shared_by_no_other_and_shares_none():
    bench = CancelBench(max_lanes=1)
    bench.admit(*(make_entry(f"c-{name}", handler=name) for name in ("a", "cancel", "b")))
    assert sorted(bench.services) == ["lane:a", "lane:cancel"]
    bench.services["lane:cancel"].process_all()
    assert bench.runs == ["c-cancel"]


def test_a_full_lane_does_not_keep_the_others_from_what_waits_for_them():
    bench = Bench()
    many = Lane.capacity + 1
    bench.admit(*(make_entry(f"a{number}", handler="a") for number in range(many)))
    bench.admit(*(make_entry(f"b{number}", handler="b") for number in range(many)))
    bench.services["lane:b"].process_all()
    assert [each for each in bench.runs if each.startswith("b")] == [f"b{number}" for number in range(many)]
    assert bench.dispatcher.waiting() == {"a": many}


# --- the start timeout ------------------------------------------------------------------------------------------------


def test_a_command_whose_lane_comes_too_late_does_not_run():
    bench = Bench(start_timeout_s=30.0)
    bench.admit(make_entry("c1"))
    bench.clock.advance(31)
    bench.process_all()
    assert bench.runs == []
    assert (bench.outcome("c1").error or "").startswith("not_started_in_time: ")


def test_a_command_that_waits_behind_a_long_run_ends_when_its_time_is_up_and_not_when_the_run_does():
    bench = Bench(start_timeout_s=30.0)
    seen: list[CommandState] = []

    def work(attempt: Attempt) -> Outcome:
        bench.clock.advance(31)
        attempt.look()
        seen.append(bench.state("waits"))
        return DONE

    bench.work = work
    bench.admit(make_entry("runs"), make_entry("waits"))
    bench.process_all()
    assert seen == [CommandState.FINISHED]
    assert bench.runs == ["runs"]
    assert bench.results == 2


def test_a_journal_that_fails_while_the_time_is_up_is_written_by_the_lane_later():
    bench = Bench(start_timeout_s=30.0)

    def work(attempt: Attempt) -> Outcome:
        bench.clock.advance(31)
        bench.journal.fault = "the disk is full"
        attempt.look()
        bench.journal.fault = None
        return DONE

    bench.work = work
    bench.admit(make_entry("runs"), make_entry("waits"))
    bench.process_all()
    assert bench.runs == ["runs"]
    assert (bench.outcome("waits").error or "").startswith("not_started_in_time: ")


# --- the verify hook --------------------------------------------------------------------------------------------------


def cannot_tell(_attempt: Attempt) -> Outcome | None:
    raise ValueError("the sensor is gone")


class TestVerify:
    def bench(self, verify, *, canceled_by: str | None = None, **members) -> Bench:
        """A command that a crash interrupted, and its handler is asked about it."""
        bench = Bench(verify=verify, **members)
        bench.journal.admit([make_entry("c1")])
        bench.journal.start("c1", bench.clock.now())
        if canceled_by is not None:
            bench.dispatcher.cancels.add("c1", canceled_by)
        bench.clock.advance(5)
        resume(bench.journal, bench.rules, bench.dispatcher, bench.clock, bench.clock.now())
        bench.process_all()
        return bench

    def test_a_command_that_was_done_is_concluded_without_a_run(self):
        bench = self.bench(lambda attempt: DONE)
        assert bench.runs == []
        assert bench.outcome("c1") == DONE

    def test_a_command_that_was_not_done_runs(self):
        bench = self.bench(lambda attempt: None)
        assert bench.runs == ["c1"]
        assert bench.outcome("c1") == DONE
        assert bench.journal.entries["c1"].attempts == 3  # the first run, the look, the second run

    def test_a_handler_that_cannot_tell_leaves_it_indeterminate(self):
        bench = self.bench(cannot_tell)
        assert bench.runs == []
        error = bench.outcome("c1").error or ""
        assert error.startswith("indeterminate: ")
        assert "the sensor is gone" in error

    def test_a_handler_that_hangs_over_it_leaves_it_indeterminate_and_the_start_goes_on(self):
        leave = threading.Event()
        bench = Bench(verify=lambda attempt: leave.wait(SOON_S) and None, runner=JobRunner(stop_grace_s=0.01))
        bench.timeout_s = 0.02
        bench.journal.admit([make_entry("c1")])
        bench.journal.start("c1", bench.clock.now())
        bench.clock.advance(5)
        # The start only puts it into its lane.
        resume(bench.journal, bench.rules, bench.dispatcher, bench.clock, bench.clock.now())
        assert bench.state("c1") is CommandState.STARTED
        bench.process_all()
        assert "verify hook did not know: timeout: " in (bench.outcome("c1").error or "")
        leave.set()
        lane = bench.services["lane:ping"].actor
        assert isinstance(lane, Lane)
        assert lane._hung is not None
        lane._hung.join(SOON_S)

    def test_a_look_that_takes_the_agent_down_is_not_repeated_for_ever(self):
        bench = Bench(verify=cannot_tell, max_attempts=3)
        bench.journal.admit([make_entry("c1")])
        bench.journal.start("c1", bench.clock.now())
        bench.journal.start("c1", bench.clock.now())
        bench.journal.start("c1", bench.clock.now())
        bench.clock.advance(5)
        assert resume(bench.journal, bench.rules, bench.dispatcher, bench.clock, bench.clock.now()) == 1
        assert (bench.outcome("c1").error or "").startswith("indeterminate: ")

    def test_a_command_that_was_taken_back_before_the_crash_is_looked_at_and_not_run(self):
        done = self.bench(lambda attempt: DONE, canceled_by="by command 9")
        assert done.outcome("c1") == DONE
        undone = self.bench(lambda attempt: None, canceled_by="by command 9")
        assert undone.runs == []
        assert undone.outcome("c1") == Outcome(OutcomeStatus.REJECTED, None, "canceled: by command 9, before it began")
        assert "canceled" not in undone.journal.settings

    def test_a_payload_that_no_longer_fits_leaves_it_indeterminate(self):
        bench = Bench(verify=lambda attempt: DONE)
        bench.verdict = Outcome(OutcomeStatus.REJECTED, error="invalid_payload: x")
        bench.journal.admit([make_entry("c1")])
        bench.journal.start("c1", bench.clock.now())
        bench.dispatcher.dispatch(bench.journal.entries["c1"], verify=True)
        bench.process_all()
        assert (bench.outcome("c1").error or "").startswith("indeterminate: invalid_payload: x")


# --- a process that is out of threads -------------------------------------------------------------------------------


class CrowdedBench(Bench):
    """No thread can be started for a lane while ``is_full``."""

    is_full = True

    def _start(self, lane: Lane) -> ThreadlessService:
        if self.is_full:
            raise RuntimeError("can't start new thread")
        return super()._start(lane)


def test_a_command_whose_lane_gets_no_thread_fails_and_the_next_one_runs():
    bench = CrowdedBench()
    bench.admit(make_entry("c1"))
    assert bench.outcome("c1").status is OutcomeStatus.FAILED
    assert (bench.outcome("c1").error or "").startswith("no_thread: no thread could be started for its lane")
    assert bench.results == 1
    assert not bench.dispatcher.is_busy()
    bench.is_full = False
    bench.admit(make_entry("c2"))
    bench.process_all()
    assert bench.outcome("c2") == DONE


def test_a_claimed_command_whose_lane_gets_no_thread_fails():
    bench = CrowdedBench(contract=Contract.IDEMPOTENT)
    entry = make_entry("c1")
    assert bench.dispatcher.claim(entry)
    bench.journal.admit([start_entry(entry, bench.clock.now())])
    assert bench.dispatcher.dispatch(entry, claimed=True)
    assert (bench.outcome("c1").error or "").startswith("no_thread: ")
    assert not bench.dispatcher.is_busy()


def test_an_interrupted_command_whose_lane_gets_no_thread_for_its_look_is_indeterminate():
    bench = CrowdedBench(verify=lambda attempt: DONE)
    entry = start_entry(make_entry("c1"), bench.clock.now())
    bench.journal.admit([entry])
    bench.dispatcher.dispatch(entry, verify=True)
    assert (bench.outcome("c1").error or "").startswith("indeterminate: no_thread: ")


def test_a_command_that_gets_no_thread_while_the_disk_fails_waits_in_the_journal():
    bench = CrowdedBench()
    entry = make_entry("c1")
    bench.journal.admit([entry])
    bench.journal.fault = "the disk is full"
    bench.dispatcher.dispatch(entry)
    assert bench.state("c1") is CommandState.RECEIVED
    bench.journal.fault = None
    bench.is_full = False
    bench.dispatcher.refill()
    bench.process_all()
    assert bench.outcome("c1") == DONE
