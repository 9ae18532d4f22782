from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from agent.errors import StorageError
from agent.wire.times import parse_time
from simulator.fleet.metrics.merging import second_of
from simulator.fleet.record import Span, WorkerGap
from simulator.fleet.run.coordinator import RunOutcome
from simulator.fleet.run.reporter import RunReporter
from tests.fleet_runs import Shape, a_run

SHAPE = Shape(duration_s=40, rate_per_s=1)


@dataclass
class Watcher:
    """A view and a folder in one: keeps what it is given."""

    phases: list[Span | None] = field(default_factory=list)
    gaps: list[tuple[WorkerGap, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def show(self, second, standing):
        self.phases.append(standing.phase)
        self.gaps.append(standing.gaps)

    def append(self, second): ...

    def keep(self, record): ...

    def note(self, text, tone):
        self.notes.append(text)


class Full(Watcher):
    """A disk that takes nothing any more."""

    def keep(self, record):
        raise StorageError("run.json: cannot be written: no space left on device")


def test_whoever_watches_sees_when_the_phases_are_over_and_things_are_handed_over():
    watcher, hold = Watcher(), Span("day", "hold", 0.0, 2.0)
    record = replace(a_run(SHAPE)[0], drained_from_s=None, phases=(hold,))
    reporter = RunReporter(watcher, watcher, record, SimpleNamespace(jobs=()), SimpleNamespace(drain_s=30.0))
    for number in range(2):
        reporter.second(second_of(number, []), hold, "", ())
    reporter.drain(RunOutcome(began_s=0.0, phases=[hold], drained_from_s=2.0))
    reporter.second(second_of(2, []), hold, "", (WorkerGap(1, 1.0, 3.0, "gone"),))
    assert watcher.phases == [hold, hold, Span("drain", "drain", 2.0, 32.0)]
    assert watcher.gaps == [(), (), (WorkerGap(1, 1.0, 3.0, "gone"),)]


def test_a_second_that_comes_when_the_next_phase_has_begun_is_shown_in_the_one_that_it_was_measured_in():
    watcher, ramp, hold = Watcher(), Span("ramp", "ramp", 0.0, 2.5), Span("hold", "hold", 2.5, 9.0)
    record = replace(a_run(SHAPE)[0], drained_from_s=None, phases=(ramp, hold))
    reporter = RunReporter(watcher, watcher, record, SimpleNamespace(jobs=()), SimpleNamespace(drain_s=30.0))
    for number in range(4):
        reporter.second(second_of(number, []), hold, "", ())
    assert watcher.phases == [ramp, ramp, hold, hold]


def test_the_record_says_when_the_load_began_and_keeps_to_it_when_later_phases_begin():
    watcher, hold = Watcher(), Span("day", "hold", 0.0, 2.0)
    reporter = RunReporter(watcher, watcher, a_run(SHAPE)[0], SimpleNamespace(jobs=()), SimpleNamespace(drain_s=30.0))
    before_s = time.time()
    reporter.phase(RunOutcome(began_s=time.monotonic() + 60, phases=[hold]))
    began_at = reporter.record.load_began_at
    assert before_s + 59.99 <= parse_time(began_at) <= time.time() + 60.01, "it begins a minute from now"
    reporter.phase(RunOutcome(began_s=time.monotonic() + 99, phases=[hold, hold]))
    assert reporter.record.load_began_at == began_at


def test_a_disk_that_is_full_when_the_phases_change_is_told_and_ends_nothing():
    full, hold = Full(), Span("day", "hold", 0.0, 2.0)
    reporter = RunReporter(full, full, a_run(SHAPE)[0], SimpleNamespace(jobs=()), SimpleNamespace(drain_s=30.0))
    reporter.phase(RunOutcome(began_s=0.0, phases=[hold]))
    reporter.drain(RunOutcome(began_s=0.0, phases=[hold], drained_from_s=2.0))
    assert full.notes == ["run.json: cannot be written: no space left on device"] * 2
    assert (reporter.record.phases, reporter.record.drained_from_s) == ((hold,), 2.0), (
        "what could not be written is not forgotten"
    )
