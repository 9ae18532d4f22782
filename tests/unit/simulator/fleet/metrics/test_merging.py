"""Merging workers: one log to the last bit, nothing counted twice, and no silent hole."""

from __future__ import annotations

import random

import pytest

from simulator.fleet.metrics.health import ProcessHealth
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.metrics.recorder import Delta, Recorder, WorkerHealth
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, WorkerGap

OK, LIMITED = OutcomeClass.OK, OutcomeClass.LIMITED
ATTEMPTS = (*Attempt, Attempt.FIRST, Attempt.FIRST)


def delta(worker: int, second: int, values=(0.1,), *, online: float = 1.0) -> Delta:
    recorder = Recorder(worker)
    recorder.gauge("online", online)
    for value in values:
        recorder.record("http.poll", OK, intended_s=0.0, sent_s=0.0, now_s=value)
    return recorder.cut(second).delta()


def counts(seconds) -> list[tuple[int, int]]:
    return [(each.second, sum(t.count for t in each.operations.get("http.poll", {}).values())) for each in seconds]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_however_many_workers_are_one_log_bit_for_bit_in_whichever_order_they_report(count):
    numbers = random.Random(1)
    merger, one = Merger(range(count)), Recorder()
    for second in range(5):
        workers = [Recorder(worker) for worker in range(count)]
        for number in range(400):
            took_s = numbers.lognormvariate(-4, 1.5)
            sent_s = numbers.random() / 100
            outcome = LIMITED if number % 9 == 0 else OK
            for recorder in (workers[number * 7 % count], one):
                recorder.record(
                    "http.poll", outcome, intended_s=0.0, sent_s=sent_s, now_s=took_s, attempt=ATTEMPTS[number % 5]
                )
        for worker in numbers.sample(workers, count):
            merger.add(worker.cut(second).delta())
    truth = one.cut(0).delta()
    assert counts(merger.ready()) == [(second, 400) for second in range(5)]
    assert merger.totals == truth.operations
    assert merger.health.send_lag == truth.health.send_lag


def test_a_second_is_given_once_every_worker_has_told_of_it():
    merger = Merger((0, 1))
    merger.add(delta(0, 0))
    merger.add(delta(0, 1))
    assert merger.ready() == []
    merger.add(delta(1, 0, (0.1, 0.2)))
    (second,) = merger.ready()
    assert counts([second]) == [(0, 3)]
    assert second.gauges == {"online": 2.0}
    assert merger.ready() == []
    merger.ended(1)
    assert counts(merger.ready()) == [(1, 1)]
    assert merger.finish() == []
    assert merger.gaps == ()


def test_what_is_sent_twice_counts_once():
    merger = Merger((0,))
    assert merger.add(delta(0, 0))
    assert not merger.add(delta(0, 0))
    merger.ready()
    assert not merger.add(delta(0, 0))
    assert merger.left_out == 2
    assert merger.totals["http.poll"][OK].count == 1


def test_a_killed_worker_holds_nobody_up_and_its_gap_is_declared():
    merger = Merger((0, 1))
    for second in range(6):
        merger.add(delta(0, second))
        if second < 2:
            merger.add(delta(1, second))
    assert len(merger.ready()) == 2
    merger.lost(1, "killed by signal 9")
    assert counts(merger.ready()) == [(2, 1), (3, 1), (4, 1), (5, 1)]
    assert not merger.add(delta(1, 3))
    assert counts(merger.finish(8)) == [(6, 0), (7, 0)]
    assert merger.gaps == (
        WorkerGap(1, 2, 8, "killed by signal 9"),
        WorkerGap(0, 6, 8, "they came too late for the time line, if at all; the totals have what came"),
    )


def counted(worker: int, second: int, name: str, value: float) -> Delta:
    recorder = Recorder(worker)
    recorder.gauge(name, value)
    recorder.gauge("waiting_readings", 1.0)
    return recorder.cut(second).delta()


@pytest.mark.parametrize("name", ["readings_sent", "commands_ordered", "results_put_aside"])
def test_what_a_worker_had_counted_stays_when_it_dies(name):
    merger = Merger((0, 1))
    for second in range(6):
        merger.add(counted(0, second, name, 10.0 * (second + 1)))
    for second in range(2):
        merger.add(counted(1, second, name, 100.0 * (second + 1)))
    merger.lost(1, "killed by signal 9")
    seconds = [*merger.ready(), *merger.finish(7)]
    assert [each.gauges[name] for each in seconds] == [110, 220, 230, 240, 250, 260, 260]
    assert [each.gauges.get("waiting_readings", 0) for each in seconds] == [2, 2, 1, 1, 1, 1, 0], (
        "is, and is not counted"
    )


def test_seconds_that_a_worker_skips_are_a_gap():
    merger = Merger((0,))
    for second in (0, 1, 4):
        merger.add(delta(0, second))
    assert counts(merger.ready()) == [(0, 1), (1, 1), (2, 0), (3, 0), (4, 1)]
    assert merger.gaps == (WorkerGap(0, 2, 4, "did not report"),)


def test_a_worker_that_is_far_behind_counts_in_the_totals_and_the_gap_says_so():
    merger = Merger((0, 1), patience=3)
    for second in range(6):
        merger.add(delta(0, second))
    assert counts(merger.ready()) == [(0, 1), (1, 1), (2, 1)]
    for second in range(6):
        assert merger.add(delta(1, second))
    assert counts(merger.ready()) == [(3, 2), (4, 2), (5, 2)]
    assert merger.totals["http.poll"][OK].count == 12
    assert merger.gaps == (
        WorkerGap(1, 0, 3, "they came too late for the time line, if at all; the totals have what came"),
    )


def test_the_error_bars_are_those_of_the_worst_worker():
    merger = Merger((0, 1))
    empty = Histogram()
    empty.record_many([0.001] * 99 + [0.5])
    merger.add(Delta(0, 0, {}, {}, WorkerHealth(empty.encode(), ProcessHealth(0.1, 0.0, 1.0, 90.0), 100, 90)))
    merger.add(Delta(1, 0, {}, {}, WorkerHealth("", ProcessHealth(0.0, 0.2, 3.0, 20.0), 100, 100)))
    merger.add(Delta(0, 1, {}, {}, WorkerHealth("", ProcessHealth(cpu_percent=70.0), 5, 5)))
    (second,) = merger.ready()
    assert second.health == GeneratorHealth(
        second.health.send_lag_p99_s, 0.5, 0.1, 0.2, 3.0, 90.0, 200, 190, send_lag=empty.encode()
    )
    assert 0.000999 < second.health.send_lag_p99_s < 0.00101
    assert (merger.health.cpu_percent, merger.health.intended, merger.health.sent) == (80.0, 205, 195)
    assert Merger((0,)).health == GeneratorHealth()
