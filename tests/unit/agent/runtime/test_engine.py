"""Lanes, runs, cancels and what follows a crash: the engine on a store in memory, its lanes without threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from pydantic import ConfigDict

from agent.core.commands import start_entry
from agent.core.values import CommandState, Contract, JournalEntry, JsonObject, Moment, Outcome, OutcomeStatus, Report
from agent.handlers.base import CommandContext, Handler, HandlerPayload, Verified
from agent.handlers.registry import HandlerRegistry
from agent.runtime.engine import CommandEngine, Lane, command_rules
from tests.support.factories import make_command, make_entry
from tests.support.fakes import Driven, StoreInMemory, make_context

SOON_S = 60.0
DONE = Outcome(OutcomeStatus.SUCCEEDED, {"ok": True})
NAMES = ("ping", "a", "b", "c", "cancel")
Work = Callable[[CommandContext], JsonObject | None]


class Scripted(Handler):
    """Does what the bench says."""

    class Payload(HandlerPayload):
        model_config = ConfigDict(extra="allow")

    def __init__(self, bench: Bench, name: str, attributes: Mapping[str, object]) -> None:
        super().__init__()
        self._bench = bench
        self.name = name
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    def verifies(self) -> bool:
        return self._bench.verify is not None

    def handle(self, payload, context):
        self._bench.runs.append(context.command_id)
        return self._bench.work(context)

    def verify(self, payload, context):
        return self._bench.verify(context)


class Bench:
    """An engine whose lanes are driven by the test; handlers run in threads of their own."""

    def __init__(
        self,
        work: Work = lambda context: {"ok": True},
        *,
        contract: Contract = Contract.ONCE,
        verify: Callable[[CommandContext], Verified | None] | None = None,
        timeout_s: float = SOON_S,
        stop_timeout_s: float = 0.01,
        store: StoreInMemory | None = None,
        **limits,
    ) -> None:
        self.store = store or StoreInMemory()
        self.clock, self.journal = self.store.clock, self.store.journal
        self.posted: list[JournalEntry | Report] = []
        self.runs: list[str] = []
        self.service_now: float | None = None
        self.work = work
        self.verify = verify
        self.services: dict[str, Driven] = {}
        attributes = {"contract": contract, "timeout_s": timeout_s, "stop_timeout_s": stop_timeout_s, **limits}
        registry = HandlerRegistry()
        for name in NAMES:
            registry.add(name, "test", "class", partial(Scripted, self, name, attributes))
        context = make_context(self.store, time=self, post_result=self.post)
        rules = command_rules(registry, handler_key="command", runs_history=True)
        self.health = context.health
        self.new_engine = lambda: CommandEngine(context, registry, rules, None, self._start)
        self.engine = self.new_engine()

    def post(self, message: JournalEntry | Report) -> None:
        self.posted.append(message)

    def now(self) -> float | None:
        """As :meth:`agent.runtime.clocks.ServiceClock.now`."""
        return self.service_now

    def recorded_at(self, moment: Moment) -> float:
        """As :meth:`agent.runtime.clocks.ServiceClock.recorded_at`."""
        return moment.wall_s

    def admit(self, *entries: JournalEntry) -> None:
        self.journal.admit(entries)
        for entry in entries:
            self.engine.dispatch(entry)

    def process_all(self) -> None:
        for driven in list(self.services.values()):
            driven.process_all()

    def state(self, command_id: str) -> CommandState:
        return self.store.entries()[command_id].state

    def outcome(self, command_id: str) -> Outcome:
        outcome = self.store.entries()[command_id].outcome
        assert outcome is not None
        return outcome

    def error(self, command_id: str) -> str:
        return self.outcome(command_id).error or ""

    def resume(self) -> None:
        self.engine.resume(self.clock.now())

    @property
    def results(self) -> list[str]:
        return [each.command.id for each in self.posted if isinstance(each, JournalEntry)]

    @property
    def reports(self) -> list[Report]:
        return [each for each in self.posted if isinstance(each, Report)]

    def _start(self, lane: Lane) -> None:
        self.services[lane.name] = Driven(lane)


def wait_in(context: CommandContext) -> JsonObject:
    return {"heeded": context.stopping.wait(SOON_S)}


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_a_command_is_journaled_before_and_after_its_handler():
    bench = Bench()
    seen: list[CommandState] = []
    bench.work = lambda context: seen.append(bench.state("c1")) or {"ok": True}
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert seen == [CommandState.STARTED]
    assert bench.outcome("c1") == DONE
    assert bench.results == ["c1"]


def test_each_handler_has_a_lane_which_runs_its_commands_in_order():
    bench = Bench()
    bench.admit(*(make_entry(f"{name}{number}", handler=name) for number in range(100) for name in ("a", "b")))
    assert bench.engine.waiting() == {"a": 100, "b": 100}
    bench.services["lane:b"].process_all()
    assert bench.runs == [f"b{number}" for number in range(100)]
    assert bench.engine.waiting() == {"a": 100}


def test_a_command_that_is_dispatched_twice_runs_once():
    bench = Bench()
    entry = make_entry("c1")
    bench.admit(entry)
    bench.engine.dispatch(entry)
    bench.process_all()
    bench.engine.dispatch(entry)
    bench.process_all()
    assert bench.runs == ["c1"]


def test_nothing_runs_that_cannot_be_journaled(caplog):
    bench = Bench()
    bench.admit(make_entry("c1"))
    bench.store.broken = "the disk is full"
    threading.Timer(0.2, bench.engine.stop).start()  # else the lane waits for the disk
    bench.process_all()
    assert bench.runs == []
    assert bench.state("c1") is CommandState.RECEIVED
    assert "the disk is full" in caplog.text


def test_an_outcome_that_a_replaced_journal_no_longer_knows_does_not_take_the_lane_down(caplog):
    bench = Bench()
    bench.work = lambda context: bench.store.connection().execute("DELETE FROM command WHERE id = 'c1'") and None
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert "c1" in caplog.text
    bench.admit(make_entry("c2"))
    bench.process_all()
    assert bench.state("c2") == CommandState.FINISHED


def test_progress_is_a_copy_and_goes_out_and_what_is_no_json_is_left_out(caplog):
    bench = Bench()

    def work(context: CommandContext) -> None:
        state: JsonObject = {"percent": 50}
        context.report_progress({"percent": 25})
        context.report_progress(state)  # the newest counts
        state["percent"] = 51
        context.report_progress({"x": object()})
        context.report_progress({"rows": [["x" * 10_000_000] * 10]})
        while not bench.reports:
            time.sleep(0.001)

    bench.work = work
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.reports == [Report("c1", "in_progress", {"percent": 50})]
    assert "its progress is no JSON" in caplog.text
    assert "its progress is left out: its result is more than" in caplog.text


def test_a_run_that_lasts_is_reported_as_under_way_once(monkeypatch):
    monkeypatch.setattr("agent.runtime.engine.PROGRESS_AFTER_S", 0.01)
    bench = Bench()

    def work(context: CommandContext) -> None:
        while not bench.reports:
            time.sleep(0.001)
        time.sleep(0.05)

    bench.work = work
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.reports == [Report("c1", "in_progress")]


# --- too late ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_verified", [False, True])
def test_a_command_that_expired_while_its_start_was_written_does_not_run(is_verified):
    """The disk is full for an hour, or the process stands still between the two."""
    bench = Bench(verify=lambda _context: Verified.not_done()) if is_verified else Bench()
    bench.service_now = 1980.0
    write = bench.journal.start

    def slow(command_id: str, at: Moment) -> None:
        write(command_id, at)
        bench.service_now = 2000.0

    bench.journal.admit([make_entry(command=make_command("c1", expires_at=1990.0))])
    if is_verified:
        bench.journal.start("c1", bench.clock.now())
    bench.journal.start = slow  # type: ignore[method-assign]
    bench.engine.dispatch(bench.store.entries()["c1"], verify=is_verified)
    bench.process_all()
    assert bench.runs == []
    assert bench.error("c1").startswith("expired:")


def test_a_command_of_an_earlier_boot_waits_until_it_is_known_whether_it_has_expired():
    bench = Bench()
    entry = make_entry(command=make_command("c1", expires_at=1990.0), received=bench.clock.now())
    bench.clock.reboot("boot-2")
    bench.admit(entry)
    bench.process_all()
    assert bench.state("c1") is CommandState.RECEIVED
    bench.engine.dispatch(entry)  # the service lists it again meanwhile
    assert not bench.engine.is_busy()
    bench.service_now = 1980.0
    bench.engine.time_is_known()
    bench.process_all()
    assert bench.runs == ["c1"]


def test_a_command_that_waited_too_long_behind_a_long_run_does_not_run():
    bench = Bench(lambda _context: bench.clock.advance(31) and None, start_timeout_s=30.0)
    bench.admit(make_entry("runs"), make_entry("waits"))
    bench.process_all()
    assert bench.runs == ["runs"]
    assert bench.error("waits").startswith("not_started_in_time: ")
    assert bench.results == ["runs", "waits"]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_handler_that_heeds_the_end_of_its_time_keeps_what_it_had_done():
    bench = Bench(wait_in, timeout_s=0.02, stop_timeout_s=SOON_S)
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.outcome("c1") == Outcome(
        OutcomeStatus.FAILED, {"heeded": True}, "timeout: 'ping' ran longer than 0.02 s"
    )
    assert bench.services["lane:ping"].actor._hung is None


def test_a_run_without_a_sign_of_life_ends_as_inactive_and_signs_of_life_keep_it_going():
    bench = Bench(wait_in, inactivity_timeout_s=0.05, stop_timeout_s=SOON_S)
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.error("c1") == "inactive: 'ping' gave no sign of life for 0.05 s"
    bench = Bench(inactivity_timeout_s=5.0)

    def work(context: CommandContext) -> JsonObject:
        for _ in range(4):
            run = threading.current_thread()
            run.alive_s -= 4.0  # as if so much time had gone by
            context.heartbeat()
            time.sleep(0.01)
        return {"ok": not context.stopping.is_set()}

    bench.work = work
    bench.admit(make_entry("c2"))
    bench.process_all()
    assert bench.outcome("c2") == DONE


def test_a_hung_handler_blocks_its_lane_only_and_the_lane_frees_itself(monkeypatch):
    leave = threading.Event()
    bench = Bench(lambda context: {"ok": leave.wait(SOON_S) if context.command_id == "hangs" else True}, timeout_s=0.05)
    bench.admit(make_entry("hangs", handler="a"), make_entry("next", handler="a"))
    bench.process_all()
    assert bench.error("hangs").startswith("timeout:")
    assert "it has not returned, and its lane is blocked" in bench.error("hangs")
    assert bench.error("next").startswith("lane_blocked:")
    bench.admit(make_entry("other", handler="b"))
    bench.process_all()
    assert bench.state("other") is CommandState.FINISHED
    assert bench.health.parts()["lane:a"].state == "blocked"
    leave.set()
    bench.services["lane:a"].actor._hung.join(SOON_S)
    bench.admit(make_entry("later", handler="a"))
    bench.process_all()
    assert bench.outcome("later") == DONE
    assert bench.health.parts()["lane:a"].state == "ok"


# --- the stop, and a crash --------------------------------------------------------------------------------------------


def test_at_the_stop_a_handler_that_ends_within_the_grace_is_concluded():
    bench = Bench()
    bench.work = lambda context: bench.engine.stop() or wait_in(context)
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.outcome("c1").result == {"heeded": True}


def test_at_the_stop_a_handler_that_goes_on_is_left_and_the_next_process_goes_by_its_contract(monkeypatch):
    monkeypatch.setattr("agent.runtime.engine.STOP_GRACE_S", 0.01)
    leave = threading.Event()
    bench = Bench()
    bench.work = lambda context: bench.engine.stop() or {"left": leave.wait(SOON_S)}
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert bench.state("c1") is CommandState.STARTED
    leave.set()
    after = Bench(store=bench.store)
    after.clock.advance(5)
    after.resume()
    assert after.error("c1").startswith("indeterminate: ")
    assert after.results == ["c1"]


class TestRestart:
    """Handlers that end this process on purpose."""

    def bench(self, work: Callable[[Bench, CommandContext], JsonObject | None], **limits) -> Bench:
        bench = Bench(contract=Contract.RESTARTS_DEVICE, **limits)
        bench.work = lambda context: work(bench, context)
        bench.journal.admit([make_entry("c1")])
        bench.engine.dispatch(bench.store.entries()["c1"])
        bench.process_all()
        return bench

    def test_a_restart_that_does_not_come_is_a_failure(self):
        bench = self.bench(lambda _bench, _context: None, timeout_s=0.3)
        assert bench.error("c1").startswith("no_restart:")

    def test_one_that_had_nothing_to_restart_is_concluded_at_once(self):
        bench = self.bench(lambda _bench, context: context.no_restart() or {"ok": True})
        assert bench.outcome("c1") == DONE


class TestVerify:
    def bench(self, verify, *, canceled_by: str | None = None, starts: int = 1, **members) -> Bench:
        """A command that a crash interrupted, and its handler is asked about it."""
        bench = Bench(verify=verify, **members)
        bench.journal.admit([make_entry("c1")])
        for _ in range(starts):
            bench.journal.start("c1", bench.clock.now())
        if canceled_by is not None:
            assert bench.engine.cancel("c1", canceled_by) == "running"
            bench.engine = bench.new_engine()
        bench.clock.advance(5)
        bench.resume()
        bench.process_all()
        return bench

    @pytest.mark.parametrize(
        ("verify", "words"),
        [(lambda _context: None, "it does not know"), (lambda _context: 1 / 0, "ZeroDivisionError")],
    )
    def test_a_handler_that_cannot_tell_leaves_it_indeterminate(self, verify, words):
        bench = self.bench(verify)
        assert bench.runs == []
        assert bench.error("c1").startswith("indeterminate: ")
        assert words in bench.error("c1")

    def test_a_command_that_was_taken_back_before_the_crash_is_looked_at_and_not_run(self):
        done = self.bench(lambda _context: Verified.succeeded({"ok": True}), canceled_by="by command 9")
        assert done.outcome("c1") == DONE
        undone = self.bench(lambda _context: Verified.not_done(), canceled_by="by command 9")
        assert undone.runs == []
        assert undone.outcome("c1") == Outcome(OutcomeStatus.REJECTED, None, "canceled: by command 9, before it began")

    def test_a_handler_that_is_gone_leaves_it_indeterminate(self):
        bench = Bench(verify=lambda _context: pytest.fail("asked"))
        command = make_command("c1", {"command": "gone"})
        bench.journal.admit([start_entry(make_entry(command=command), bench.clock.now())])
        bench.engine.dispatch(bench.store.entries()["c1"], verify=True)
        bench.process_all()
        assert bench.error("c1").startswith("indeterminate: unknown_command: ")


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_a_command_that_is_canceled_while_it_waits_never_runs_also_after_a_crash():
    bench = Bench()
    bench.admit(make_entry("c1"))
    assert bench.engine.cancel("c1", "by command 9") == "waiting"
    # The journal has it already: were the power cut now, nothing would run.
    assert bench.outcome("c1") == Outcome(OutcomeStatus.REJECTED, None, "canceled: by command 9, before it began")
    bench.process_all()
    assert bench.runs == []
    assert bench.results == ["c1"]


def test_a_command_that_is_canceled_while_it_runs_is_told_to_end_and_keeps_what_it_had_done():
    bench, found = Bench(stop_timeout_s=SOON_S), []
    bench.work = lambda context: found.append(bench.engine.cancel("c1", "by command 9")) or wait_in(context)
    bench.admit(make_entry("c1"))
    bench.process_all()
    assert found == ["running"]
    assert bench.outcome("c1") == Outcome(
        OutcomeStatus.FAILED, {"heeded": True}, "canceled: by command 9, while it ran"
    )
    assert bench.store.entries()["c1"].canceled_by == "by command 9"


def test_a_canceled_command_whose_handler_has_not_begun_is_not_begun():
    bench, found = Bench(), []
    start = bench.journal.start
    bench.admit(make_entry("c1"))

    def start_and_cancel(command_id, at):
        start(command_id, at)
        found.append(bench.engine.cancel("c1", "by command 9"))

    bench.journal.start = start_and_cancel  # type: ignore[method-assign]
    bench.process_all()
    assert found == ["running"]
    assert bench.runs == []
    assert bench.error("c1").startswith("canceled: ")


# --- a process that is out of threads ---------------------------------------------------------------------------------


class CrowdedBench(Bench):
    """No thread can be started for a lane while ``is_full``."""

    is_full = True

    def _start(self, lane: Lane) -> None:
        if self.is_full:
            raise RuntimeError("can't start new thread")
        super()._start(lane)


def test_a_command_whose_lane_gets_no_thread_fails_and_the_next_one_runs():
    bench = CrowdedBench()
    bench.admit(make_entry("c1"))
    assert bench.outcome("c1").status is OutcomeStatus.FAILED
    assert bench.error("c1").startswith("no_thread: no thread could be started for its lane")
    assert bench.results == ["c1"]
    assert not bench.engine.is_busy()
    bench.is_full = False
    bench.admit(make_entry("c2"))
    bench.process_all()
    assert bench.outcome("c2") == DONE
