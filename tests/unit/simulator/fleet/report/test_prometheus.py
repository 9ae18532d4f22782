"""Figures for Prometheus: counted by phase and fault, never falling, in buckets that tell quantiles apart, valid."""

from __future__ import annotations

import gc
import math
import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import READING_AGE, ReadingAges, ages_of, command_operation
from simulator.fleet.metrics.histogram import LONGEST_S, Histogram, merged, placed
from simulator.fleet.metrics.merging import merge_operations
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, RunRecord, Second, Span, Tally, WorkerGap
from simulator.fleet.report.page.plots import spans_with_drain
from simulator.fleet.report.prometheus import counting
from simulator.fleet.report.prometheus.address import MetricsAddress
from simulator.fleet.report.prometheus.counting import (
    AGE_BOUNDS_S,
    HEALTH_S,
    PERIODS_MAX,
    TIME_BOUNDS_S,
    Counting,
    Period,
    planned_periods,
)
from simulator.fleet.report.prometheus.of_record import RecordCounting
from simulator.fleet.report.run_status import (
    RunHead,
    RunStatus,
    WorkerState,
    WorkerStatus,
    phase_under_way,
    spans_under_way,
)
from simulator.fleet.report.timeline import Totals
from tests.fleet_runs import Shape, a_run

RECORD, SECONDS = a_run(Shape(duration_s=40, rate_per_s=60))
HEAD = RunHead("steady-10k", "core", "http_poll", "http://t", 10_000, 2, RECORD.phases, RECORD.faults, 40.0)
GOOD = OutcomeClass.OK
COUNTING = ("_total", "_bucket", "_count", "_sum")


def samples_of(text: str) -> dict[tuple[str, frozenset], float]:
    found = [
        ((sample.name, frozenset(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found), "no series is there twice"
    return dict(found)


def total(samples: dict[tuple[str, frozenset], float], name: str, **labels: str) -> float:
    """The sum over all series of a metric that have these labels."""
    return sum(value for (each, own), value in samples.items() if each == name and labels.items() <= dict(own).items())


def standing_at(second: int, *, dead: bool = False) -> RunStatus:
    workers = (WorkerStatus(0, WorkerState.RUNNING), WorkerStatus(1, WorkerState.DEAD if dead else "running"))
    phase = phase_under_way(RECORD.phases, second)
    gaps = (WorkerGap(1, 25, second + 1, "killed"),) if dead else ()
    return RunStatus(phase, "", spans_under_way(RECORD.faults, second), workers, gaps=gaps)


def so_far(seconds: Iterable[Second], head: RunHead = HEAD) -> str:
    with MetricsAddress(0, head) as address:
        for second in seconds:
            address.take(second, standing_at(second.second))
        return address.text()


def file_of(record: RunRecord = RECORD, seconds: Iterable[Second] = SECONDS) -> str:
    counting = RecordCounting(record.faults, spans_with_drain(record))
    for _ in counting.passed_on(seconds):
        pass
    return counting.text(record)


@pytest.fixture(scope="module")
def live() -> dict[tuple[str, frozenset], float]:
    return samples_of(so_far(SECONDS))


def test_the_figures_so_far_are_at_an_address():
    with MetricsAddress(0, HEAD) as address:
        before = samples_of(httpx.get(address.url, timeout=120).text)
        assert total(before, "fleet_run_info", scenario="steady-10k", target="http://t") == 1
        names = {name for name, _ in before}
        assert not names & {"fleet_run_seconds", "fleet_generator_sent_total", "fleet_devices"}, (
            "nothing is measured yet"
        )
        for second in SECONDS[:3]:
            address.take(second, standing_at(second.second))
        answer = httpx.get(address.url, timeout=120)
        assert answer.headers["Content-Type"].startswith("text/plain")
        found = samples_of(answer.text)
        assert httpx.get(address.url + "x", timeout=120).status_code == 404
        with pytest.raises(ConfigurationError, match="choose another one"):
            MetricsAddress(int(address.url.split(":")[2].split("/")[0]), HEAD)
    assert total(found, "fleet_generator_sent_total") == sum(second.health.sent for second in SECONDS[:3])
    assert total(found, "fleet_devices", what="online") == SECONDS[2].gauges["online"]
    assert total(found, "fleet_devices", what="planned") == 10_000
    assert total(found, "fleet_run_seconds") == 3


def test_each_second_counts_under_its_phase_its_faults_its_operation_and_its_outcome(live):
    for phase in RECORD.phases:
        for faults in ((), *((fault,) for fault in RECORD.faults)):
            inside = [
                each
                for each in SECONDS
                if phase_under_way(RECORD.phases, each.second) == phase
                and spans_under_way(RECORD.faults, each.second) == faults
            ]
            labels = {"scenario": "steady-10k", "phase": phase.name, "fault": faults[0].name if faults else "none"}
            for name, classes in merge_operations([each.operations for each in inside]).items():
                for outcome, tally in classes.items():
                    where = {**labels, "operation": name, "outcome": outcome.value}
                    assert total(live, "fleet_exchanges_total", **where) == tally.count
                    again = total(live, "fleet_resends_total", **where)
                    assert again == tally.count - tally.first_attempts
    assert total(live, "fleet_exchanges_total", fault="half-gone", outcome="transport") > 0
    assert total(live, "fleet_exchanges_total", fault="none", outcome="transport") == 0


def test_faults_at_the_same_time_are_told_together():
    faults = (Span("a", "link", 2, 6), Span("b", "dns", 4, 8))
    periods = planned_periods((Span("hold", "hold", 0, 10),), faults)
    assert periods == (
        Period("hold", "none"), Period("hold", "a"), Period("hold", "a+b"), Period("hold", "b"),
        Period("drain", "none"),
    )  # fmt: skip


def test_the_file_of_a_run_counts_as_its_record_does():
    found = samples_of(file_of())
    good = RECORD.operations["http.poll"][GOOD]
    assert total(found, "fleet_exchanges_total", operation="http.poll", outcome="ok") == good.count
    # An answer that never came has a time, too; a connection that was not made has none.
    histogram = merged([good.response, RECORD.operations["http.poll"][OutcomeClass.TIMEOUT].response])
    assert total(found, "fleet_response_seconds_count", operation="http.poll") == histogram.count > good.count
    for bound in TIME_BOUNDS_S:
        at_most = total(found, "fleet_response_seconds_bucket", operation="http.poll", le=f"{bound:g}")
        assert at_most == histogram.count_at_most(bound)
    whole = total(found, "fleet_response_seconds_sum", operation="http.poll")
    assert whole == pytest.approx(histogram.mean() * histogram.count)
    assert total(found, "fleet_exchanges_total", phase="unknown") == 0
    assert total(found, "fleet_run_exit_code", scenario="steady-10k") == 4
    assert total(found, "fleet_run_info", verdict="lost", seed="1") == 1
    assert total(found, "fleet_threshold_held", threshold="audit.lost == 0") == 0
    assert total(found, "fleet_audit", stream="readings", what="lost") == 2
    assert total(found, "fleet_audit_complete") == 1


def test_what_a_record_has_and_its_seconds_have_not_is_counted_without_a_phase():
    found = samples_of(file_of(seconds=SECONDS[5:]))
    missing = merge_operations([each.operations for each in SECONDS[:5]])["http.poll"][GOOD]
    unknown = {"phase": "unknown", "fault": "unknown", "operation": "http.poll"}
    assert total(found, "fleet_exchanges_total", **unknown) == missing.count
    assert total(found, "fleet_response_seconds_count", **unknown) == missing.count
    everything = RECORD.operations["http.poll"][GOOD].count
    assert total(found, "fleet_exchanges_total", operation="http.poll", outcome="ok") == everything


def test_buckets_are_fine_enough_that_a_poll_held_for_20_s_does_not_read_29():
    """PromQL puts a quantile somewhere between two bounds: they may be a factor of 1.28 apart at most."""
    for bounds in (TIME_BOUNDS_S, AGE_BOUNDS_S):
        assert max(high / low for low, high in pairwise(bounds)) <= 1.281
        assert bounds[-1] < LONGEST_S
    held = Histogram()
    held.record_many([20.0] * 100)
    counts, sum_s = placed(held.encode(), TIME_BOUNDS_S)
    [bucket] = counts.nonzero()[0]
    assert (TIME_BOUNDS_S[bucket - 1], TIME_BOUNDS_S[bucket]) == (16.0, 20.0)
    assert sum_s == pytest.approx(2000, rel=0.001)


def test_wider_buckets_hold_what_the_narrow_ones_do():
    times = Histogram()
    times.record_many([0.0, 1e-6, 0.00009, 0.0001, 0.9, 1.0, 1.1, 99.9, 100.0, 3599.0, 9999.0])
    counts, sum_s = placed(times.encode(), TIME_BOUNDS_S)
    assert counts.sum() == times.count
    cumulative = counts.cumsum()
    assert [int(count) for count in cumulative[:-1]] == [times.count_at_most(bound) for bound in TIME_BOUNDS_S]
    assert counts[-1] == 2
    assert sum_s == pytest.approx(times.mean() * times.count)
    nothing, none = placed("", TIME_BOUNDS_S)
    assert (nothing.sum(), none) == (0, 0.0)


def with_ages(second: Second) -> Second:
    """Nine of ten readings are accepted after 20 ms, one after 4 s; in the last second one never is."""
    recorder = Recorder()
    ages = ReadingAges(recorder)
    ages.accepted([99.98] * 90, 100.0)
    ages.accepted([96.0] * 10, 100.0)
    if second.second == SECONDS[-1].second:
        ages.given_up([95.0], OutcomeClass.REFUSED, 100.0)
    return replace(second, operations={**second.operations, **recorder.cut(second.second).delta().operations})


def test_ages_of_readings_are_a_histogram_and_readings_are_counted_by_outcome():
    seconds = [with_ages(second) for second in SECONDS]
    ages: Operations = {READING_AGE: merge_operations([each.operations for each in seconds])[READING_AGE]}
    accepted = 100 * len(seconds)
    for text in (so_far(seconds), file_of(replace(RECORD, ages=ages), seconds)):
        found = samples_of(text)
        assert total(found, "fleet_readings_total", outcome="ok") == accepted
        assert total(found, "fleet_readings_total", outcome="refused") == 1
        assert total(found, "fleet_reading_age_seconds_bucket", le="0.025") == accepted * 0.9
        assert total(found, "fleet_reading_age_seconds_bucket", le="+Inf") == accepted
        whole = total(found, "fleet_reading_age_seconds_sum")
        assert whole == pytest.approx(accepted * (0.9 * 0.02 + 0.1 * 4), rel=0.001)
        assert total(found, "fleet_exchanges_total", operation=READING_AGE) == 0


def with_commands(second: Second) -> Second:
    """Eight pings succeed after 50 ms, a valve is rejected after 3 s; in the last second one is open."""
    recorder = Recorder()
    ends = [("ping", "succeeded", GOOD, 0.05)] * 8 + [("valve", "rejected", GOOD, 3.0)]
    if second.second == SECONDS[-1].second:
        ends.append(("ping", "open", OutcomeClass.TIMEOUT, 30.0))
    for name, state, outcome, age_s in ends:
        recorder.record(command_operation(name, state), outcome, intended_s=0.0, sent_s=None, now_s=age_s)
    return replace(second, operations={**second.operations, **recorder.cut(second.second).delta().operations})


def test_ages_of_commands_are_histograms_by_name_and_end_state():
    seconds = [with_commands(second) for second in SECONDS]
    ages = ages_of(merge_operations([each.operations for each in seconds]))
    for text in (
        so_far(seconds),
        file_of(replace(RECORD, ages=ages), seconds),
        file_of(replace(RECORD, ages=ages), []),
    ):
        found = samples_of(text)
        assert total(found, "fleet_commands_total", command="ping", state="succeeded") == 8 * len(seconds)
        assert total(found, "fleet_commands_total", command="ping", state="open") == 1
        assert total(found, "fleet_command_age_seconds_bucket", command="valve", state="rejected", le="2.5") == 0
        assert total(found, "fleet_command_age_seconds_bucket", command="valve", le="3.15") == len(seconds)
        assert not any("age" in dict(labels).get("operation", "") for _, labels in found)


def test_stages_of_commands_are_a_histogram_and_no_exchanges():
    text = RECORD.command_stages["delivered"]
    operations = {"commands.delivered": {GOOD: Tally(120, 120, text, text)}}
    for found in (samples_of(so_far([replace(SECONDS[0], operations=operations)])), samples_of(file_of(seconds=[]))):
        assert total(found, "fleet_command_stage_seconds_count", stage="delivered") == 120
        assert total(found, "fleet_exchanges_total", operation="commands.delivered") == 0


def test_nothing_that_counts_ever_falls_when_phases_change_and_a_worker_dies():
    """The worker that dies has counted half of the readings: its part is missing in the fleet's sum from then on."""
    before: dict[tuple[str, frozenset], float] = {}
    with MetricsAddress(0, HEAD) as address:
        for second in SECONDS:
            dead = second.second >= 25
            sent = second.second * 50.0 * (1 if dead else 2)
            gauges = {**second.gauges, "readings_sent": sent, "readings_unanswered": 3.0}
            address.take(replace(second, gauges=gauges), standing_at(second.second, dead=dead))
            found = samples_of(address.text())
            counted = {
                key: value for key, value in found.items() if key[0].endswith(("_total", "_bucket", "_count", "_sum"))
            }
            assert all(counted.get(key, -math.inf) >= value for key, value in before.items())
            before = counted
    sent_at = {second.second for second in SECONDS}
    alive, after = max(sent_at & set(range(25))), min(sent_at - set(range(25)))
    expected = alive * 100 + (max(sent_at) - after) * 50
    assert total(found, "fleet_ledger_entries_total", what="readings_sent") == expected
    assert total(found, "fleet_devices", what="readings_unanswered") == 3
    assert total(found, "fleet_workers", state="dead") == 1
    assert total(found, "fleet_worker_seconds_missing_total") == 15


def test_a_count_of_a_later_phase_stands_at_0_before_it_grows():
    """Prometheus sees no growth of a series that is new."""
    found = samples_of(so_far(SECONDS[:1]))
    where = {("scenario", "steady-10k"), ("phase", "hold"), ("fault", "half-gone"), ("operation", "http.poll")}
    assert found["fleet_exchanges_total", frozenset({*where, ("outcome", "transport")})] == 0
    assert found["fleet_response_seconds_count", frozenset(where)] == 0
    assert total(found, "fleet_exchanges_total", phase="hold") == 0
    assert total(found, "fleet_exchanges_total", phase="ramp") > 0


def test_phases_and_faults_that_are_under_way_are_1():
    storm = next(fault for fault in RECORD.faults if fault.kind == "disconnect_storm")
    found = samples_of(so_far([each for each in SECONDS if each.second <= storm.begin_s]))
    assert total(found, "fleet_phase_active", phase="hold", kind="hold") == 1
    assert total(found, "fleet_phase_active") == 1
    assert total(found, "fleet_fault_active", fault="half-gone", kind="disconnect_storm") == 1
    assert total(found, "fleet_fault_active") == 1
    assert total(found, "fleet_fault_devices") == storm.devices
    assert sum(name == "fleet_fault_active" for name, _ in found) == len(RECORD.faults)


def test_a_spike_of_the_generator_is_seen_by_whoever_reads_every_15_s():
    bad = replace(SECONDS[0].health, loop_lag_max_s=2.5, cpu_percent=150.0)
    seconds = [replace(SECONDS[0], second=at, health=bad if at == 3 else SECONDS[0].health) for at in range(40)]
    seen = total(samples_of(so_far(seconds[: 3 + HEALTH_S])), "fleet_generator_loop_lag_max_seconds")
    assert seen == 2.5
    assert total(samples_of(so_far(seconds[:5])), "fleet_generator_cpu_ratio") == 1.5
    assert total(samples_of(so_far(seconds[: 4 + HEALTH_S])), "fleet_generator_loop_lag_max_seconds") < 1


def test_more_phases_with_faults_than_are_told_apart_are_counted_together():
    figures = Counting()
    for number in range(PERIODS_MAX + 10):
        figures.take(SECONDS[0], Period(f"phase-{number}", "none"))
    periods = {period for _, _, period in figures.exchanges}
    assert len(periods) == PERIODS_MAX + 1
    polls = SECONDS[0].operations["http.poll"][GOOD].count
    assert figures.exchanges["http.poll", GOOD, counting.OTHER].count == 10 * polls


@pytest.mark.parametrize("what", ["address", "totals"])
def test_an_hour_of_seconds_leaves_no_second_behind(what):
    if what == "address":
        figures = Counting()
        take = lambda second: figures.take(second, Period("hold", "none"))  # noqa: E731
    else:
        take = Totals().take
    gc.collect()
    before = sum(isinstance(each, GeneratorHealth) for each in gc.get_objects())
    for number in range(200):
        take(replace(SECONDS[0], second=number, health=replace(SECONDS[0].health)))
    gc.collect()
    assert sum(isinstance(each, GeneratorHealth) for each in gc.get_objects()) <= before + HEALTH_S + 2


@pytest.mark.parametrize("text", [so_far([]), so_far(SECONDS), file_of(), file_of(replace(RECORD, audit=None), [])])
def test_promtool_has_nothing_to_say_against_the_figures(text, require_program):
    promtool = require_program("promtool", "prometheus")
    run = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_every_metric_is_described_and_no_other():
    text = (Path(__file__).parents[5] / "docs" / "monitoring.md").read_text()
    tables = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `fleet_")]
    described = {name for cell in tables for name in re.findall(r"`([^`]+)`", cell)}
    families = {
        family.name + ("_total" if family.type == "counter" else "")
        for text in (so_far([with_stages(with_ages(second)) for second in SECONDS]), file_of())
        for family in text_string_to_metric_families(text)
    }
    group = "fleet_generator_*_seconds"
    assert {group if fnmatch(name, group) else name for name in families} == described


def with_stages(second: Second) -> Second:
    text = RECORD.command_stages["delivered"]
    operations = {**second.operations, "commands.delivered": {GOOD: Tally(120, 120, text, text)}}
    return replace(second, operations=operations)
