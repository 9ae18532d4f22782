"""The judge of the two-hour run finds what grows, and the program itself runs, with few processes for a short time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import require_program
from tests.fault import steady
from tests.fault.growth import Sample, Spans, append_samples, judge, look_at, spans_of, table_of, write_heading
from tests.fault.operator_load import KINDS, faults_of_commands, faults_of_effects, faults_of_readings
from tests.fault.steady_rig import DIRECT, FRONT, MQTT, Plan
from tests.mosquitto import find_mosquitto

pytestmark = pytest.mark.long

HOURS_2 = 7200.0
STILL = Sample("agent", 0.0, 40_000, 30_000, 52_000, 14, 9, 1.0)


def life(change: Callable[[Sample], Sample] = lambda each: each, *, until_s: float = HOURS_2) -> list[Sample]:
    """Two hours of samples of one process, each changed by a function."""
    return [change(replace(STILL, at_s=10.0 * number)) for number in range(int(until_s / 10) + 1)]


def grown_by(part: float, each: Sample, *figures: str) -> Sample:
    """More and more of these figures, by so much from minute ten to the end."""
    factor = 1 + part * (each.at_s - 600) / (HOURS_2 - 660)
    return replace(each, **{figure: int(getattr(each, figure) * factor) for figure in figures})


def judged(samples: list[Sample]):
    """The finding of a process, beside one that stays as it is."""
    found, _other = judge([*samples, *life(lambda each: replace(each, process="other"))], spans_of(HOURS_2))
    return found


def test_a_process_that_stays_as_it_is_has_no_fault():
    found = judged(life())
    assert (found.growth, found.ended, found.note) == ((), "", "")
    assert (found.base_kib, found.end_kib, found.change) == (40_000, 40_000, 0)


def test_growth_above_the_bar_is_found_and_growth_below_it_is_not():
    everything = ("pss_kib", "own_kib", "resident_kib")
    assert judged(life(lambda each: grown_by(0.06, each, *everything))).growth
    assert not judged(life(lambda each: grown_by(0.045, each, *everything))).growth


def test_growth_before_minute_ten_is_no_growth():
    def warm(each: Sample) -> Sample:
        return replace(each, pss_kib=each.pss_kib // 2) if each.at_s < 500 else each

    assert not judged(life(warm)).growth


def test_a_peak_in_between_is_shown_and_is_no_fault():
    found = judged(life(lambda each: replace(each, pss_kib=90_000) if each.at_s == 3000 else each))
    assert found.max_kib == 90_000
    assert not found.growth


def test_own_memory_that_grows_is_found_although_others_share_more_of_the_rest():
    found = judged(life(lambda each: grown_by(0.08, each, "own_kib")))
    assert found.growth == ("agent: memory grew, PSS from 39.1 to 39.1 MiB, anonymous from 29.3 to 31.6 MiB",)


def test_a_few_pages_of_a_tiny_process_are_no_growth():
    def tiny(each: Sample) -> Sample:
        kib = 1800 + (200 if each.at_s > 4000 else 0)
        return replace(each, pss_kib=kib, own_kib=kib - 700, resident_kib=kib + 6000)

    assert not judged(life(tiny)).growth


def test_files_that_are_shared_by_fewer_processes_at_the_end_are_no_growth():
    found = judged(life(lambda each: grown_by(0.2, each, "pss_kib")))
    assert (found.growth, found.note) == ((), "others share less with it")


@pytest.mark.parametrize(("figure", "name"), [("descriptors", "open files"), ("threads", "threads")])
def test_one_more_at_the_end_than_ever_from_minute_five_to_fifteen_is_found(figure, name):
    def leaks(each: Sample) -> Sample:
        return replace(each, **{figure: getattr(each, figure) + (each.at_s > 4000)})

    (sentence,) = judged(life(leaks)).growth
    assert name in sentence


def test_connections_that_come_and_go_are_no_leak():
    found = judged(life(lambda each: replace(each, descriptors=14 + int(each.at_s / 10) % 3)))
    assert found.growth == ()


@pytest.mark.parametrize("until_s", [300, 5000, 7190])
def test_a_process_that_ended_before_the_end_is_found(until_s):
    assert judged(life(until_s=until_s)).ended == f"agent was not there the whole time: last seen after {until_s} s"


def test_the_spans_of_two_hours_are_minute_ten_and_the_last_two_minutes():
    assert spans_of(HOURS_2) == Spans((540, 660), (7080, 7200), (300, 900))
    short = spans_of(180)
    assert max(short.base[1], short.counts[1]) < short.end[0]


def test_the_table_and_the_samples_name_each_process_and_its_figures(tmp_path):
    leak = life(lambda each: grown_by(0.1, replace(each, process="leak"), "pss_kib", "own_kib", "resident_kib"))
    spans = spans_of(HOURS_2)
    text = table_of(judge([*life(), *leak], spans), spans)
    assert text.startswith("base: from 9.0 to 11.0 min; end: from 118.0 to 120.0 min\n")
    assert [line.split()[0] for line in text.splitlines()[3:]] == ["agent", "leak"]
    assert text.endswith("GREW")
    write_heading(tmp_path / "samples.csv")
    append_samples(tmp_path / "samples.csv", life()[:2])
    lines = (tmp_path / "samples.csv").read_text().splitlines()
    assert lines[0] == "process,at_s,pss_kib,own_kib,resident_kib,descriptors,threads,cpu_s"
    assert lines[2] == "agent,10.0,40000,30000,52000,14,9,1.0"


def test_a_command_a_program_or_a_reading_that_is_lost_or_doubled_is_found():
    kinds = {"c1": KINDS[0], "c2": KINDS[1], "c3": KINDS[2], "c4": KINDS[1]}
    assert [kind.name for kind in kinds.values()] == ["ping", "append", "unknown", "append"]
    right = {"c1": "succeeded", "c2": "succeeded", "c3": "rejected", "c4": "succeeded"}
    assert faults_of_commands(kinds, right) == []
    assert faults_of_commands(kinds, {**right, "c1": "delivered", "c3": "succeeded"}) == [
        "command c1 (ping) is delivered",
        "command c3 (unknown) is succeeded",
    ]
    assert faults_of_commands({"c1": KINDS[0]}, {}) == ["command c1 (ping) is gone"]
    assert faults_of_effects("a", kinds, {"c2": 1, "c4": 1}) == []
    assert faults_of_effects("a", kinds, {"c2": 2}) == ["a: command c2 ran 2 times", "a: command c4 has never run"]
    assert faults_of_readings("a", {1, 2}, {1: 1, 2: 1}) == []
    assert faults_of_readings("a", {1, 2}, {2: 2}) == ["a: reading 1 is not stored", "a: reading 2 is stored 2 times"]


GROWS = """
import sys, threading
kept = []
for line in sys.stdin:
    kept.append((b"x" * (8 << 20), open("/dev/null")))
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    print(flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system has no smaps_rollup")
def test_a_real_process_that_keeps_memory_files_and_threads_is_found_and_its_end_too():
    with subprocess.Popen(
        [sys.executable, "-I", "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout

        def look(at_s: float) -> Sample:
            process.stdin.write(b"more\n")
            process.stdin.flush()
            assert process.stdout.readline()
            found = look_at("leak", process.pid, at_s)
            assert found
            return found

        (found,) = judge([look(600), look(HOURS_2)], spans_of(HOURS_2))
        process.stdin.close()
        process.wait(60)
        assert look_at("leak", process.pid, HOURS_2) is None
    assert found.change > 0.2
    memory, files, threads = found.growth
    assert "memory grew" in memory
    assert "open files" in files
    assert "threads" in threads


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system has no smaps_rollup")
@pytest.mark.timeout(600)
def test_the_program_runs_for_some_seconds_and_says_what_that_is_worth(tmp_path):
    mosquitto = find_mosquitto() or require_program("mosquitto")
    plan = Plan(
        duration_s=12,
        agents=((DIRECT, 1), (FRONT, 1), (MQTT, 1)),
        fleet=3,
        earlier_readings=500,
        command_every_s=0.3,
        sample_every_s=1,
        fleet_extra_s=5,
    )
    found = steady.run(tmp_path / "rig", tmp_path / "samples.csv", mosquitto, plan, lambda _text: None)
    assert found.faults == []
    agents = ["agent http 1", "agent gateway http 1", "agent mqtt 1"]
    assert found.processes[:7] == ["service", "broker", "gateway", *agents, "fleet"]
    assert "fleet child 1" in found.processes
    commands, readings, _processor, worth = found.words
    assert "succeeded" in commands
    assert "rejected" in commands
    assert int(readings.rpartition(" ")[2]) >= 6
    assert "proves nothing" in worth
