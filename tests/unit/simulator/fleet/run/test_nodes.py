"""What the workers of each machine of a cluster measure, summed up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from simulator.fleet.metrics.health import ProcessHealth
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.merging import second_of
from simulator.fleet.metrics.recorder import Delta, WorkerHealth
from simulator.fleet.record import NodeRecord
from simulator.fleet.run.messages import Finished, Measured, Ready
from simulator.fleet.run.nodes import NodeFigures, describe
from simulator.fleet.run.reporter import RunReporter
from simulator.fleet.run.workers import WorkerLost
from tests.fleet_runs import Shape, a_run

PLACED = (NodeRecord("10.0.0.1", 0, 2), NodeRecord("10.0.0.2", 2, 1))


class Watcher:
    """A view and a folder in one."""

    def __init__(self) -> None:
        self.nodes = []
        self.kept = []

    def show(self, second, standing):
        self.nodes.append(standing.nodes)

    def append(self, second): ...

    def keep(self, record):
        self.kept.append(record)

    def note(self, text, tone): ...


def delta(worker: int, second: int, *, sent: int, lag_s: float, cpu: float) -> Delta:
    lag = Histogram()
    for _ in range(sent):
        lag.record(lag_s)
    return Delta(worker, second, {}, health=WorkerHealth(lag.encode(), ProcessHealth(cpu_percent=cpu), sent, sent))


@pytest.fixture
def watched():
    watcher = Watcher()
    record = replace(a_run(Shape(duration_s=20, rate_per_s=1))[0], nodes=PLACED)
    jobs = SimpleNamespace(jobs=(None, None, None))
    reporter = RunReporter(watcher, watcher, record, jobs, SimpleNamespace(drain_s=30.0))
    for worker, devices in enumerate((10, 11, 12)):
        reporter.received(Ready(worker, devices))
    return watcher, reporter


def measure(reporter: RunReporter, worker: int, second: int, **figures: float) -> None:
    reporter.received(Measured(worker, second, delta(worker, second, **figures)))


def test_each_machine_has_the_figures_of_its_workers_in_the_last_second(watched):
    watcher, reporter = watched
    measure(reporter, 0, 0, sent=500, lag_s=0.5, cpu=90)
    measure(reporter, 0, 1, sent=10, lag_s=0.001, cpu=30)
    measure(reporter, 1, 1, sent=20, lag_s=0.004, cpu=50)
    measure(reporter, 2, 1, sent=5, lag_s=0.002, cpu=20)
    reporter.second(second_of(1, []), None, "", ())
    one, other = watcher.nodes[-1]
    assert (one.name, one.workers, one.devices, one.sent_per_s, one.cpu_percent) == ("10.0.0.1", 2, 21, 30, 50)
    assert one.send_lag_p99_s == pytest.approx(0.004, rel=0.01)
    assert (other.devices, other.sent_per_s, other.lost, other.gone_s) == (12, 5, 0, None)


def test_a_machine_is_gone_when_the_last_of_its_workers_is(watched):
    watcher, reporter = watched
    for worker in range(3):
        measure(reporter, worker, 30, sent=1, lag_s=0.001, cpu=10)
    reporter.lost(WorkerLost(0, "signal 9"))
    reporter.second(second_of(30, []), None, "", ())
    assert [(node.lost, node.gone_s, node.sent_per_s) for node in watcher.nodes[-1]] == [(1, None, 1), (0, None, 1)]
    reporter.lost(WorkerLost(1, "signal 9"))
    reporter.second(second_of(31, []), None, "", ())
    assert [(node.lost, node.gone_s, node.sent_per_s) for node in watcher.nodes[-1]] == [(2, 31.0, 0), (0, None, 1)]


def test_the_record_has_the_whole_run_and_a_second_that_comes_twice_counts_once(watched):
    _, reporter = watched
    for _ in range(2):
        measure(reporter, 2, 0, sent=40, lag_s=0.001, cpu=20)
    measure(reporter, 2, 1, sent=60, lag_s=0.001, cpu=40)
    reporter.received(Finished(2, None))
    one, other = reporter.nodes.records(reporter.workers)
    assert (one.sent, one.cpu_percent, one.send_lag_p99_s) == (0, 0.0, 0.0)
    assert (other.sent, other.cpu_percent, other.devices, other.lost) == (100, 30.0, 12, 0)


def test_a_run_on_one_machine_has_no_machines():
    assert NodeFigures(()).records({}) == NodeFigures(()).statuses({}) == ()
    assert describe(()) == ""
    assert describe(PLACED) == "10.0.0.1 with worker 0 to 1; 10.0.0.2 with worker 2"
