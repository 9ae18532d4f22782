"""What workers measure and what comes of it: nothing lost or counted twice, and no silent gap."""

from __future__ import annotations

import random

import pytest

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Merger, Recorder, Totals, merge_operations
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import GeneratorHealth, Second, WorkerGap

OK, LIMITED, TRANSPORT = OutcomeClass.OK, OutcomeClass.LIMITED, OutcomeClass.TRANSPORT
ATTEMPTS = (*Attempt, Attempt.FIRST, Attempt.FIRST)


def second(number: int, values=(0.1,), **gauges: float) -> Second:
    recorder = Recorder()
    for value in values:
        recorder.record("http.poll", OK, intended_s=0.0, sent_s=0.0, now_s=value)
    return recorder.cut(number, gauges).measured()


def counts(seconds) -> list[tuple[int, int]]:
    return [(each.second, sum(t.count for t in each.operations.get("http.poll", {}).values())) for each in seconds]


def test_intended_sent_and_answered_are_told_apart():
    recorder = Recorder()
    recorder.intended += 2
    recorder.sent += 2
    recorder.record("http.poll", OK, intended_s=10.0, sent_s=10.5, now_s=10.75)
    recorder.record("http.poll", OK, intended_s=11.0, sent_s=11.0, now_s=11.5, attempt=Attempt.AMBIGUOUS)
    recorder.record("http.poll", TRANSPORT, intended_s=1.0, sent_s=None, now_s=3.0)
    # What an earlier request of the same device kept waiting is no lag of the generator.
    recorder.record("mqtt.sensor_data", OK, intended_s=10.0, ready_s=18.0, sent_s=18.5, now_s=19.0)
    found = recorder.cut(7).measured(GeneratorHealth(loop_lag_max_s=0.25, cpu_percent=40.0))
    tally = found.operations["http.poll"][OK]
    assert (found.second, tally.count, tally.first_attempts, tally.resends_ambiguous) == (7, 2, 1, 1)
    assert Histogram.decode(tally.response).max_s == 0.75
    assert Histogram.decode(tally.service).max_s == 0.5
    unsent = found.operations["http.poll"][TRANSPORT]
    assert (unsent.count, Histogram.decode(unsent.response).max_s, unsent.service) == (1, 2.0, "")
    assert Histogram.decode(found.operations["mqtt.sensor_data"][OK].response).max_s == 9.0
    health = found.health
    assert (Histogram.decode(health.send_lag).count, health.send_lag_max_s) == (3, 0.5)
    assert (health.intended, health.sent, health.cpu_percent, health.loop_lag_max_s) == (2, 2, 40.0, 0.25)


@pytest.mark.parametrize("count", [1, 3])
def test_however_many_workers_are_one_log_bit_for_bit_in_whichever_order_they_report(count):
    numbers = random.Random(1)
    merger, totals, one = Merger(range(count)), Totals(), Recorder()
    for number in range(5):
        workers = [Recorder() for _ in range(count)]
        for at in range(400):
            took_s, sent_s = numbers.lognormvariate(-4, 1.5), numbers.random() / 100
            for recorder in (workers[at * 7 % count], one):
                recorder.record(
                    "http.poll", LIMITED if at % 9 == 0 else OK, intended_s=0.0, sent_s=sent_s, now_s=took_s,
                    attempt=ATTEMPTS[at % 5],
                )  # fmt: skip
        for worker in numbers.sample(range(count), count):
            merger.add(worker, workers[worker].cut(number).measured())
            merger.add(worker, workers[worker].cut(number).measured())  # what comes twice counts once
    seconds = merger.ready()
    for each in seconds:
        totals.add(each)
    truth = one.cut(0).measured()
    assert counts(seconds) == [(number, 400) for number in range(5)]
    assert totals.operations == truth.operations == merge_operations(each.operations for each in seconds)
    assert totals.health.send_lag == truth.health.send_lag
    assert merger.gaps == ()


def test_a_killed_worker_holds_nobody_up_and_its_gap_is_declared():
    merger = Merger((0, 1))
    for number in range(6):
        merger.add(0, second(number, readings_sent=10.0 * (number + 1), waiting_readings=1.0))
        if number < 2:
            counted = {"readings_sent": 100.0 * (number + 1), "results_put_aside": 3.0}
            merger.add(1, second(number, waiting_readings=1.0, **counted))
    seconds = merger.ready()
    assert len(seconds) == 2
    merger.lost(1, "killed by signal 9")
    merger.add(1, second(3))
    seconds += merger.ready()
    seconds += merger.finish(7)
    assert counts(seconds[2:]) == [(2, 1), (3, 1), (4, 1), (5, 1), (6, 0)]
    assert [each.gauges["readings_sent"] for each in seconds] == [110, 220, 230, 240, 250, 260, 260]
    assert [each.gauges["results_put_aside"] for each in seconds] == [3] * 7, "what the dead one had counted stays"
    assert [each.gauges.get("waiting_readings", 0) for each in seconds] == [2, 2, 1, 1, 1, 1, 0]
    late = "they came too late, if at all, and are in no figure"
    assert merger.gaps == (WorkerGap(1, 2, 7, "killed by signal 9"), WorkerGap(0, 6, 7, late))


def test_seconds_that_a_worker_skips_or_sends_too_late_are_a_gap():
    merger = Merger((0, 1), patience=3)
    for number in (0, 1, 4, 5):
        merger.add(0, second(number))
    assert counts(merger.ready()) == [(0, 1), (1, 1), (2, 0)]
    merger.add(1, second(0))
    for number in (3, 4, 5):
        merger.add(1, second(number))
    assert counts(merger.ready()) == [(3, 1), (4, 2), (5, 2)]
    late = "they came too late, if at all, and are in no figure"
    assert merger.gaps == (WorkerGap(1, 0, 3, late), WorkerGap(0, 2, 4, "did not report"))
