"""The coordinator on virtual time: what workers are told, and what comes of what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.errors import TransportError
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.plan import Timeline
from simulator.fleet.record import Second, Span, WorkerGap
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.views import RunStatus, RunView
from simulator.fleet.run.coordinator import GONE_AFTER_S, Coordinator
from simulator.fleet.run.local_workers import LocalWorkers
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
    WorkerLost,
)
from simulator.fleet.run.run import Run
from simulator.fleet.scenario.model import READER
from simulator.fleet.workload.base import WorkloadSummary
from tests.fleet_runs import blank_record

Happening = Callable[[], FromWorker | None]


@dataclass
class FakeWorkers(LocalWorkers):
    """Two workers on virtual time; each second of each is measured, as long as the worker is there.

    Attributes:
        online: the gauge of each worker, by second.
        answer: how the one request of each second ends.
        happenings: what happens at which second of the run, once.
        told: what each worker was sent.
    """

    online: Callable[[int], float] = lambda _: 50.0
    answer: Callable[[int], OutcomeClass] = lambda _: OutcomeClass.OK
    happenings: dict[int, Happening] = field(default_factory=dict)
    now_s: float = 100.0
    told: tuple[list[ToWorker], list[ToWorker]] = field(default_factory=lambda: ([], []))
    alive: set[int] = field(default_factory=lambda: {0, 1})
    began_s: float | None = None
    at: int = 0

    @property
    def living(self) -> tuple[int, ...]:
        return tuple(sorted(self.alive))

    def send(self, worker: int, message: ToWorker) -> None:
        self.told[worker].append(message)
        if isinstance(message, Begin) and not worker:
            self.began_s = self.now_s + message.after_s

    def receive(self, timeout_s: float) -> Iterator[FromWorker]:
        self.now_s += timeout_s
        last = self.told[0][-1] if self.told[0] else None
        for worker in self.living:
            if last is None:
                yield Ready(worker)
            elif isinstance(last, Drain):
                yield Drained(worker, (f"late-{worker}",), 2)
            elif isinstance(last, Stop):
                self.alive.discard(worker)
                yield Finished(worker, WorkloadSummary())
        while self.began_s is not None and self.now_s >= self.began_s + self.at + 1:
            happening = self.happenings.get(self.at)
            message = happening() if happening else None
            if isinstance(message, WorkerLost):
                self.alive.discard(message.worker)
            if message is not None:
                yield message
            for worker in self.living:
                recorder = Recorder()
                recorder.gauge("online", self.online(self.at))
                recorder.record("http.poll", self.answer(self.at), intended_s=1.0, sent_s=1.0, now_s=1.01)
                yield Measured(worker, recorder.cut(self.at).measured())
            self.at += 1


class Watching(RunView):
    """Remembers each second with its phase and what it waits for, and the end of the first gap."""

    def __init__(self) -> None:
        self.seconds: list[tuple[int, str, str]] = []
        self.gap_ends: list[float] = []

    def second(self, second: Second, status: RunStatus) -> None:
        self.seconds.append((second.second, status.phase.name if status.phase else "", status.waiting_for))
        self.gap_ends.append(status.gaps[0].to_s if status.gaps else 0)


@pytest.fixture
def conduct(tmp_path):
    def conduct(workers: FakeWorkers, *phases: dict[str, Any], faults: tuple[Span, ...] = ()) -> Run:
        scenario = READER.validate_python(
            {"scenario": "s", "fleet": {"devices": 100}, "phases": list(phases), "drain_s": 5.0}
        )
        spans = tuple(Span(each.name, "", each.begin_s, each.end_s) for each in Timeline.of(scenario).spans)
        record = blank_record(workers=2, devices=100, phases=spans, faults=faults)
        with RunFolder(tmp_path / "run") as folder:
            run = Run(scenario, folder, record, Watching())
            now = lambda: workers.now_s  # noqa: E731
            Coordinator(run, workers, now=now, boot_time=now).conduct()
        return run

    return conduct


RAMP = {"kind": "ramp", "name": "ramp", "duration_s": 3.0}
HOLD = {"kind": "hold", "name": "hold", "duration_s": 7.0}


def interrupt() -> None:
    raise KeyboardInterrupt


def test_all_workers_begin_at_one_instant_and_every_phase_follows_the_one_before(conduct):
    workers = FakeWorkers()
    run = conduct(workers, RAMP, HOLD)
    assert workers.told[0] == workers.told[1]
    assert [type(message) for message in workers.told[0]] == [Begin, EnterPhases, Drain, Stop]
    assert workers.told[0][1] == EnterPhases(0, (0.0, 3.0))
    assert workers.told[0][2].from_s == 10.0  # the phases' end, not when it was noticed
    assert run.record.drained_from_s == 10.0
    phases = [(span.name, span.begin_s, span.end_s) for span in run.record.phases]
    assert phases == [("ramp", 0.0, 3.0), ("hold", 3.0, 10.0)]
    assert (run.failures, run.unreachable, run.interrupted, set(run.summaries)) == ([], "", False, {0, 1})
    assert (run.late, run.late_count) == (("late-0", "late-1"), 4)
    shown = run.view.seconds
    assert [second for second, *_ in shown] == list(range(len(shown)))
    assert [phase for _, phase, _ in shown[:10]] == ["ramp"] * 3 + ["hold"] * 7
    assert run.merger.gaps == ()


def test_a_barrier_holds_the_next_phase_back_until_it_opens(conduct):
    workers = FakeWorkers(online=lambda second: 50.0 if second >= 6 else 10.0)
    run = conduct(workers, RAMP | {"until": "online >= 99%", "until_within_s": 30.0}, HOLD)
    assert run.failures == []
    assert run.record.phases[0].end_s == run.record.phases[1].begin_s == pytest.approx(7.0, abs=0.3)
    _, first, second, *_ = workers.told[0]
    assert first == EnterPhases(0, (0.0,)), "when the one behind the barrier begins, nobody can say yet"
    assert second == EnterPhases(1, (run.record.phases[1].begin_s,))
    assert ("ramp", "online >= 99%") in {(phase, waiting) for _, phase, waiting in run.view.seconds}


def test_a_killed_worker_is_a_declared_gap_and_the_others_go_on(conduct):
    run = conduct(FakeWorkers(happenings={4: lambda: WorkerLost(1, "its process ended with signal 9")}), RAMP, HOLD)
    assert set(run.summaries) == {0}
    count = len(run.view.seconds)
    assert run.merger.gaps == (WorkerGap(1, 4, count, "its process ended with signal 9"),)
    assert run.view.gap_ends == [0, 0, 0, 0, *range(5, count + 1)], "whoever watches sees it grow"


def test_a_target_that_goes_away_ends_the_run_without_waiting_for_what_nobody_takes(conduct):
    workers = FakeWorkers(answer=lambda second: OutcomeClass.TRANSPORT if second >= 5 else OutcomeClass.OK)
    run = conduct(workers, RAMP, HOLD | {"duration_s": 600.0})
    assert run.unreachable == "the target went away: nothing was answered from second 5 on"
    assert run.record.duration_s == pytest.approx(6 + GONE_AFTER_S, abs=1)
    assert Drain not in [type(message) for message in workers.told[0]]
    assert set(run.summaries) == {0, 1}


def test_a_blackout_that_a_barrier_moved_is_on_purpose_when_it_is_played_and_stands_so_in_what_came_of_it(conduct):
    begin = 30  # the barrier's 20 s later than planned
    workers = FakeWorkers(
        online=lambda second: 50.0 if second >= 23 else 10.0,
        answer=lambda second: OutcomeClass.TIMEOUT if begin <= second < begin + 18 else OutcomeClass.OK,
    )
    wait = RAMP | {"until": "online >= 99%", "until_within_s": 60.0}
    blackout = Span("blackout", "blackout", 9.0, 27.0, 100)
    run = conduct(workers, wait, HOLD | {"duration_s": 60.0}, faults=(blackout,))
    assert run.unreachable == ""
    (played,) = run.record.faults
    assert played.begin_s == pytest.approx(begin, abs=0.5)
    assert played.begin_s - run.record.phases[1].begin_s == pytest.approx(6.0)
    assert played.end_s - played.begin_s == pytest.approx(18.0)


def test_ctrl_c_hands_over_what_is_under_way_and_gives_a_result(conduct):
    workers = FakeWorkers(happenings={2: interrupt})
    run = conduct(workers, RAMP, HOLD)
    assert run.interrupted
    assert [type(message) for message in workers.told[0][-2:]] == [Drain, Stop]
    assert set(run.summaries) == {0, 1}
    assert run.record.drained_from_s == run.record.phases[-1].end_s <= run.record.duration_s < 10
    assert run.record.drained_from_s == pytest.approx(2.75, abs=0.5)


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        (["too many open files"], "^too many open files$"),
        ([], "^no worker could begin: worker 1: its process ended with exit code 1$"),
    ],
)
def test_workers_that_cannot_begin_say_why(problems, text, conduct):
    class Hopeless(FakeWorkers):
        def receive(self, timeout_s: float) -> Iterator[FromWorker]:
            self.now_s += timeout_s
            for worker in self.living:
                yield from (Problem(worker, problem) for problem in problems)
                self.alive.discard(worker)
                yield WorkerLost(worker, "its process ended with exit code 1")

    with pytest.raises(TransportError, match=text):
        conduct(Hopeless(), RAMP)
