"""What a worker notes: nothing lost between two cuts, three times kept apart, 429 in a class of its own."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet.metrics import recorder as module
from simulator.fleet.metrics.health import ProcessHealth
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.merging import merge_operations
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt, OutcomeClass

OK, LIMITED, TRANSPORT = OutcomeClass.OK, OutcomeClass.LIMITED, OutcomeClass.TRANSPORT


def test_intended_sent_and_answered_are_told_apart():
    recorder = Recorder(worker=3)
    recorder.intended += 2
    recorder.sent += 2
    recorder.record("http.poll", OK, intended_s=10.0, sent_s=10.5, now_s=10.75)
    recorder.record("http.poll", OK, intended_s=11.0, sent_s=11.0, now_s=11.5, attempt=Attempt.AMBIGUOUS)
    delta = recorder.cut(7).delta(ProcessHealth(loop_lag_max_s=0.25, cpu_percent=40.0))
    tally = delta.operations["http.poll"][OK]
    assert (delta.worker, delta.second) == (3, 7)
    assert (tally.count, tally.first_attempts, tally.resends_ambiguous) == (2, 1, 1)
    assert Histogram.decode(tally.response).max_s == 0.75
    assert Histogram.decode(tally.service).max_s == 0.5
    assert Histogram.decode(delta.health.send_lag).max_s == 0.5
    assert (delta.health.intended, delta.health.sent, delta.health.process.cpu_percent) == (2, 2, 40.0)


def test_resends_after_a_refusal_and_ambiguous_ones_are_told_apart_also_of_what_ends_in_the_drain():
    recorder = Recorder()
    attempts = [Attempt.FIRST, Attempt.AFTER_REFUSAL, Attempt.AFTER_REFUSAL, Attempt.AMBIGUOUS]
    for attempt in attempts:
        recorder.record("http.report", OK, intended_s=1.0, sent_s=1.0, now_s=1.5, attempt=attempt)
    recorder.drain(2.0)
    for attempt in attempts:
        recorder.record("http.report", OK, intended_s=1.9, sent_s=1.9, now_s=2.5, attempt=attempt)
    delta = recorder.cut(0).delta()
    for operations in (delta.operations, delta.late):
        tally = operations["http.report"][OK]
        assert (tally.count, tally.first_attempts, tally.resends_ambiguous) == (8, 2, 2)


def test_what_the_device_itself_kept_waiting_is_no_lag_of_the_generator():
    recorder = Recorder()
    recorder.record("mqtt.sensor_data", OK, intended_s=10.0, ready_s=18.0, sent_s=18.5, now_s=19.0)
    delta = recorder.cut(0).delta()
    assert Histogram.decode(delta.health.send_lag).max_s == 0.5
    assert Histogram.decode(delta.operations["mqtt.sensor_data"][OK].response).max_s == 9.0


def test_what_was_never_sent_has_waited_and_was_not_served():
    recorder = Recorder()
    recorder.record("http.poll", TRANSPORT, intended_s=1.0, sent_s=None, now_s=3.0)
    delta = recorder.cut(0).delta()
    tally = delta.operations["http.poll"][TRANSPORT]
    assert (tally.count, Histogram.decode(tally.response).max_s, tally.service) == (1, 2.0, "")
    assert delta.health.send_lag == ""


def test_a_fast_429_does_not_lower_the_others():
    recorder = Recorder()
    recorder.record("http.poll", OK, intended_s=0.0, sent_s=0.0, now_s=1.0)
    for _ in range(99):
        recorder.record("http.poll", LIMITED, intended_s=0.0, sent_s=0.0, now_s=0.001)
    tallies = recorder.cut(0).delta().operations["http.poll"]
    assert Histogram.decode(tallies[OK].response).percentile(50) == 1.0
    assert tallies[LIMITED].count == 99


def test_a_cut_takes_everything_and_a_quiet_second_is_empty():
    recorder = Recorder()
    recorder.gauge("online", 10)
    recorder.record("http.poll", OK, intended_s=0.0, sent_s=0.0, now_s=1.0)
    first, second = recorder.cut(0), recorder.cut(1)
    assert second.delta().operations == {}
    assert first.delta().operations["http.poll"][OK].count == 1
    assert second.delta().gauges == {"online": 10}


@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from((OK, LIMITED))), max_size=40), st.integers(1, 9))
def test_many_cuts_together_are_one_log(exchanges, chunk):
    recorder = Recorder()
    deltas = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        for number, (took_s, outcome) in enumerate(exchanges):
            recorder.record("http.poll", outcome, intended_s=0.0, sent_s=0.0, now_s=took_s)
            if number % 7 == 6:
                deltas.append(recorder.cut(number).delta())
    deltas.append(recorder.cut(99).delta())
    together = merge_operations([delta.operations for delta in deltas])
    for outcome in (OK, LIMITED):
        log = Histogram()
        log.record_many([took_s for took_s, its in exchanges if its is outcome])
        tally = together.get("http.poll", {}).get(outcome)
        assert (tally.response if tally else "") == log.encode()
        assert (tally.service if tally else "") == log.encode()


def test_a_delta_goes_through_a_pipe():
    recorder = Recorder()
    recorder.record("http.poll", OK, intended_s=0.0, sent_s=0.0, now_s=1.0)
    delta = recorder.cut(0).delta()
    here, there = Pipe()
    with here, there:
        here.send(delta)
        assert there.recv() == delta
