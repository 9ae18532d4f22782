from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from agent.errors import StorageError, TransportError
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Second, Span, WorkerGap
from simulator.fleet.run.coordinator import Coordinator, PhaseSchedule, RunOutcome
from simulator.fleet.run.messages import (
    Begin,
    Drain,
    Drained,
    EnterPhases,
    Finished,
    FromWorker,
    Measured,
    Problem,
    Ready,
    Stop,
    ToWorker,
    on_clock,
)
from simulator.fleet.run.target_watch import GONE_AFTER_S
from simulator.fleet.run.workers import WorkerLost
from simulator.fleet.scenario.model import HoldPhase, Phase, RampPhase
from simulator.fleet.workload.base import WorkloadSummary

Happening = Callable[[], FromWorker | WorkerLost | None]


@dataclass
class FakeRun:
    """Two workers on virtual time; each second of each is measured, as long as the worker is there.

    Attributes:
        online: the gauge of each worker, by second.
        answer: how the one request of each second ends.
        happenings: what happens at which second of the run, once.
        ahead_s: how far the second worker's clock is ahead.
        told: what the first worker was sent, and ``told_ahead`` what the second one was.
    """

    online: Callable[[int], float] = lambda _: 50.0
    answer: Callable[[int], OutcomeClass] = lambda _: OutcomeClass.OK
    happenings: dict[int, Happening] = field(default_factory=dict)
    now_s: float = 100.0
    ahead_s: float = 0.0
    told: list[ToWorker] = field(default_factory=list)
    told_ahead: list[ToWorker] = field(default_factory=list)
    alive: set[int] = field(default_factory=lambda: {0, 1})
    began_s: float | None = None
    second: int = 0
    seconds: list[tuple[int, str, str]] = field(default_factory=list)
    shown_gaps: list[tuple[WorkerGap, ...]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    full_from: int = 1 << 60

    @property
    def living(self) -> tuple[int, ...]:
        return tuple(sorted(self.alive))

    def now(self) -> float:
        return self.now_s

    # --- the workers ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def start(self, jobs: Sequence[Any]) -> None: ...

    def send(self, worker: int, message: ToWorker) -> None:
        (self.told_ahead if worker else self.told).append(message)
        if isinstance(message, Begin) and not worker:
            self.began_s = message.at_s

    def receive(self, timeout_s: float) -> Iterator[FromWorker | WorkerLost]:
        self.now_s += timeout_s
        last = self.told[-1] if self.told else None
        for worker in self.living:
            if last is None:
                yield Ready(worker, 50, -self.ahead_s * worker)
            elif isinstance(last, Drain):
                yield Drained(worker, (f"late-{worker}",), 2)
            elif isinstance(last, Stop):
                self.alive.discard(worker)
                yield Finished(worker, WorkloadSummary())
        while self.began_s is not None and self.now_s >= self.began_s + self.second + 1:
            happening = self.happenings.get(self.second)
            message = happening() if happening else None
            if isinstance(message, WorkerLost):
                self.alive.discard(message.worker)
            if message is not None:
                yield message
            yield from (self.measured(worker) for worker in self.living)
            self.second += 1

    def collect(self, _on_progress: object) -> tuple[str, ...]:
        return ()

    def measured(self, worker: int) -> Measured:
        recorder = Recorder()
        recorder.gauge("online", self.online(self.second))
        recorder.record("http.poll", self.answer(self.second), intended_s=1.0, sent_s=1.0, now_s=1.01)
        return Measured(worker, recorder.cut(self.second).measured())

    # --- the listener ---

    def on_second(self, second: Second, phase: Span | None, waiting_for: str, gaps: tuple[WorkerGap, ...]) -> None:
        self.shown_gaps.append(gaps)
        if second.second >= self.full_from:
            raise StorageError("no space left")
        self.seconds.append((second.second, phase.name if phase else "", waiting_for))

    def phase(self, outcome: RunOutcome) -> None:
        self.sentences.append(f"phase {outcome.phases[-1].name}")

    def drain(self, outcome: RunOutcome) -> None:
        self.sentences.append(f"drain from {outcome.drained_from_s:.1f}")

    def received(self, message: FromWorker) -> None:
        assert message.worker in {0, 1}

    def gone(self, gone: WorkerLost) -> None:
        self.sentences.append(f"gone {gone.worker}")

    def warn(self, sentence: str) -> None:
        self.sentences.append(sentence)


class Listener:
    """The fake run as the coordinator is given its listener."""

    def __init__(self, run: FakeRun) -> None:
        self.second = run.on_second
        self.phase = run.phase
        self.drain = run.drain
        self.received = run.received
        self.lost = run.gone
        self.warn = run.warn


def conduct(run: FakeRun, *phases: Phase, faults: tuple[Span, ...] = ()) -> tuple[RunOutcome, Merger]:
    merger = Merger([0, 1])
    schedule = PhaseSchedule(phases, devices=100, faults=faults, drain_s=5.0)
    return Coordinator(
        run, schedule, merger, Listener(run), now=run.now, boot_time=run.now, apart=lambda: 0.0
    ).conduct(), merger


RAMP = RampPhase(kind="ramp", name="ramp", duration_s=3.0)
HOLD = HoldPhase(kind="hold", name="hold", duration_s=7.0)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_all_workers_begin_at_one_instant_and_every_phase_follows_the_one_before():
    stage = FakeRun()
    done, merger = conduct(stage, RAMP, HOLD)
    begin = stage.told[0]
    assert isinstance(begin, Begin)
    assert stage.told[1] == EnterPhases(0, (begin.at_s, begin.at_s + 3.0))
    assert [type(message) for message in stage.told[2:]] == [Drain, Stop]
    assert stage.told[2].from_s == pytest.approx(begin.at_s + 10.0)  # the phases' end, not when it was noticed
    assert stage.told_ahead == stage.told
    assert done.drained_from_s == pytest.approx(10.0)
    assert stage.sentences[-1] == "drain from 10.0"
    assert [(span.name, span.begin_s, span.end_s) for span in done.phases] == [("ramp", 0.0, 3.0), ("hold", 3.0, 10.0)]
    assert (done.failures, done.unreachable, done.interrupted, set(done.summaries)) == ([], None, False, {0, 1})
    assert (done.late, done.late_count) == (("late-0", "late-1"), 4)
    assert [second for second, *_ in stage.seconds] == list(range(len(stage.seconds)))
    assert [phase for _, phase, _ in stage.seconds[:10]] == ["ramp"] * 3 + ["hold"] * 7
    assert merger.gaps == ()


def test_a_worker_with_another_clock_is_told_its_times_on_that():
    stage = FakeRun(ahead_s=86_400.5)
    done, _ = conduct(stage, RAMP, HOLD)
    assert [type(message) for message in stage.told] == [type(message) for message in stage.told_ahead]
    assert stage.told_ahead == [on_clock(message, 86_400.5) for message in stage.told]
    assert stage.told_ahead != stage.told
    assert done.problems == []


def test_a_barrier_holds_the_next_phase_back_until_it_opens():
    stage = FakeRun(online=lambda second: 50.0 if second >= 6 else 10.0)
    wait = RampPhase(kind="ramp", name="ramp", duration_s=3.0, until="online >= 99%", until_within_s=30.0)
    done, _ = conduct(stage, wait, HOLD)
    assert done.failures == []
    assert done.phases[0].end_s == pytest.approx(7.0, abs=0.3)
    assert done.phases[1].begin_s == done.phases[0].end_s
    begin, first, second, *_ = stage.told
    assert isinstance(begin, Begin)
    assert first == EnterPhases(0, (begin.at_s,)), "when the one behind the barrier begins, nobody can say yet"
    assert second == EnterPhases(1, (pytest.approx(begin.at_s + done.phases[1].begin_s),))  # type: ignore[arg-type]
    assert ("ramp", "online >= 99%") in {(phase, waiting) for _, phase, waiting in stage.seconds}


def test_a_barrier_that_never_opens_fails_the_run_and_lets_it_go_on():
    stage = FakeRun(online=lambda _: 1.0)
    wait = RampPhase(kind="ramp", name="ramp", duration_s=3.0, until="online >= 99%", until_within_s=2.0)
    done, _ = conduct(stage, wait, HOLD)
    assert done.failures == ["phase ramp: 'online >= 99%' did not come true within 2 s after its end"]
    assert [span.name for span in done.phases] == ["ramp", "hold"]


def test_a_killed_worker_is_a_declared_gap_and_the_others_go_on():
    stage = FakeRun(happenings={4: lambda: WorkerLost(1, "its process ended with signal 9")})
    done, merger = conduct(stage, RAMP, HOLD)
    assert "gone 1" in stage.sentences
    assert set(done.summaries) == {0}
    (gap,) = merger.gaps
    assert gap == WorkerGap(1, 4, len(stage.seconds), "its process ended with signal 9")
    shown = [gaps[0].to_s if gaps else 0 for gaps in stage.shown_gaps]
    assert shown == [0, 0, 0, 0, *range(5, len(stage.seconds) + 1)], "whoever watches sees it grow"


def test_the_last_worker_that_dies_leaves_a_gap_to_the_end_of_the_run():
    died = {4: lambda: WorkerLost(0, "signal 9"), 5: lambda: WorkerLost(1, "signal 9")}
    done, merger = conduct(FakeRun(happenings=died), RAMP, HOLD)
    assert done.unreachable is None
    end = math.ceil(done.duration_s)
    assert end > 5
    assert set(merger.gaps) == {WorkerGap(0, 4, end, "signal 9"), WorkerGap(1, 5, end, "signal 9")}


def test_a_target_that_goes_away_ends_the_run_without_waiting_for_what_nobody_takes():
    stage = FakeRun(answer=lambda second: OutcomeClass.TRANSPORT if second >= 5 else OutcomeClass.OK)
    done, _ = conduct(stage, RAMP, HoldPhase(kind="hold", name="hold", duration_s=600.0))
    assert done.unreachable == "the target went away: nothing was answered from second 5 on"
    assert done.duration_s == pytest.approx(6 + GONE_AFTER_S, abs=1)
    assert Drain not in [type(message) for message in stage.told]
    assert set(done.summaries) == {0, 1}


def test_silence_that_was_made_on_purpose_is_no_target_that_went_away():
    stage = FakeRun(answer=lambda second: OutcomeClass.TIMEOUT if 5 <= second < 40 else OutcomeClass.OK)
    blackout = Span("blackout", "blackout", 5.0, 40.0)
    done, _ = conduct(stage, HoldPhase(kind="hold", name="hold", duration_s=60.0), faults=(blackout,))
    assert done.unreachable is None


def test_a_blackout_that_a_barrier_moved_is_on_purpose_when_it_is_played_and_stands_so_in_what_came_of_it():
    begin = 30  # the barrier's 20 s later than planned
    stage = FakeRun(
        online=lambda second: 50.0 if second >= 23 else 10.0,
        answer=lambda second: OutcomeClass.TIMEOUT if begin <= second < begin + 18 else OutcomeClass.OK,
    )
    wait = RampPhase(kind="ramp", name="ramp", duration_s=3.0, until="online >= 99%", until_within_s=60.0)
    blackout = Span("blackout", "blackout", 9.0, 27.0, 100)
    done, _ = conduct(stage, wait, HoldPhase(kind="hold", name="hold", duration_s=60.0), faults=(blackout,))
    assert done.unreachable is None
    (played,) = done.faults
    assert played.begin_s == pytest.approx(begin, abs=0.5)
    assert played.begin_s - done.phases[1].begin_s == pytest.approx(6.0)
    assert played.end_s - played.begin_s == pytest.approx(18.0)


def test_ctrl_c_hands_over_what_is_under_way_and_gives_a_result():
    stage = FakeRun(happenings={2: interrupt})
    done, _ = conduct(stage, RAMP, HOLD)
    assert done.interrupted
    assert [type(message) for message in stage.told[-2:]] == [Drain, Stop]
    assert set(done.summaries) == {0, 1}
    assert done.drained_from_s == done.phases[-1].end_s <= done.duration_s < 10
    assert done.drained_from_s == pytest.approx(2.75, abs=0.5)


def test_ctrl_c_between_two_workers_lets_both_begin_and_end():
    class Interrupted(FakeRun):
        def send(self, worker: int, message: ToWorker) -> None:
            super().send(worker, message)
            if isinstance(message, Begin) and not worker:
                signal.raise_signal(signal.SIGINT)

    stage = Interrupted()
    done, _ = conduct(stage, RAMP, HOLD)
    assert done.interrupted
    assert [type(message) for message in stage.told] == [Begin, Stop]
    assert stage.told_ahead == stage.told
    assert set(done.summaries) == {0, 1}


def test_workers_that_cannot_begin_say_why():
    class Hopeless(FakeRun):
        def receive(self, timeout_s: float) -> Iterator[FromWorker | WorkerLost]:
            self.now_s += timeout_s
            for worker in self.living:
                yield Problem(worker, "too many open files")
                self.alive.discard(worker)
                yield WorkerLost(worker, "its process ended with exit code 0")

    with pytest.raises(TransportError, match="too many open files"):
        conduct(Hopeless(), RAMP)
