"""Two runs held against each other: what differs is found, what does not is not, and what cannot be is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import xmlschema
from click.testing import CliRunner

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.threshold_judging import judge_thresholds
from simulator.fleet.metrics.thresholds import parse
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, RunRecord, Second, Tally, Verdict, VerdictStatus
from simulator.fleet.report.compare import Finding, Terms, compare_runs, scenario_differences
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.resampling import Drawings, Sample, block_length_s, blocks_of
from tests.fleet_runs import Shape, a_run

SCHEMA = Path(__file__).parents[2] / "report_parts" / "junit.xsd"
SHAPE = Shape(duration_s=80, rate_per_s=60, good=True)
RUN = a_run(SHAPE)


def kept(folder: Path, run: tuple[RunRecord, list[Second]]) -> Path:
    record, seconds = run
    with RunFolder(folder) as written:
        for second in seconds:
            written.append(second)
        written.finish(record)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return kept(tmp_path_factory.mktemp("runs") / "a", RUN)


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    return kept(tmp_path_factory.mktemp("runs") / "b", a_run(replace(SHAPE, seed=2)))


def compare(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(program, ["compare", *map(str, arguments)], standalone_mode=False)
    if result.exception is None:
        return int(result.return_value), result.output
    return getattr(result.exception, "exit_code", -1), str(getattr(result.exception, "message", result.exception))


def findings(folder_a: Path, folder_b: Path, **terms: object) -> dict[tuple[str, str], Finding]:
    found = compare_runs(folder_a, folder_b, Terms(drawings=200, **terms))
    return {(each.operation, each.name): each.finding for each in found.differences}


def test_the_same_run_with_another_seed_shows_no_difference(base, other):
    found = findings(base, other)
    assert set(found.values()) <= {Finding.NOT_SHOWN, Finding.TOO_FEW}
    assert found["http.poll", "p99"] is Finding.NOT_SHOWN
    assert found["http.report", "p99.9"] is Finding.TOO_FEW, "ten answers have to lie beyond a percentile"
    code, said = compare(base, other)
    assert code == 0
    assert "B is worse in 0, better in 0" in said


def test_a_slower_target_is_worse_and_the_other_way_round_better(base, tmp_path):
    slower = kept(tmp_path / "b", a_run(replace(SHAPE, seed=2, slower=1.3, target="http://127.0.0.1:9")))
    found = findings(base, slower)
    assert [found["http.poll", name] for name in ("p50", "p95", "p99")] == [Finding.WORSE] * 3
    assert found["http.poll", "ok per second"] is Finding.NOT_SHOWN
    back = findings(slower, base)
    assert [back["http.poll", name] for name in ("p50", "p95", "p99")] == [Finding.BETTER] * 3
    code, said = compare(base, slower, "--json")
    assert code == 1
    told = json.loads(said)
    assert told["worse"] >= 3
    p50 = next(each for each in told["differences"] if (each["operation"], each["name"]) == ("http.poll", "p50"))
    assert p50["change"]["low"] < p50["change"]["value"] < p50["change"]["high"]
    assert p50["change"]["value"] == pytest.approx(30, abs=6)
    assert compare(base, slower, "--margin", 60)[0] == 0, "a difference that nobody cares about"


def test_errors_and_limits_are_shares_and_their_seconds_are_found(base, tmp_path):
    bad = kept(tmp_path / "b", a_run(replace(SHAPE, good=False)))
    found = compare_runs(base, bad, Terms(drawings=200))
    by_name = {(each.operation, each.name): each for each in found.differences}
    errors = by_name["http.poll", "errors"]
    assert errors.finding is Finding.WORSE
    assert (errors.a.value, errors.b.value > 0.03) == (0, True)
    assert ("http.sensor_data", "limited (429)") in by_name
    assert "B has gaps; their seconds are left out" in found.warnings
    code, said = compare(base, bad)
    assert code == 1
    assert "points [" in said


def test_a_phase_can_be_chosen_and_ramps_are_left_out(base, other):
    assert compare_runs(base, other, Terms(drawings=200)).compared == ("hold", "storm")
    hold = compare_runs(base, other, Terms(phase="hold", drawings=200))
    storm = compare_runs(base, other, Terms(phase="storm", drawings=200))
    rates = [next(e.a.value for e in each.differences if e.name == "ok per second") for each in (hold, storm)]
    assert rates[1] == pytest.approx(2 * rates[0])
    code, said = compare(base, other, "--phase", "calm")
    assert (code, said) == (2, "--phase calm: the run steady-10k has no such phase; it has ramp, hold, storm")


def test_different_scenarios_are_refused_and_the_keys_are_named(base, tmp_path):
    record, seconds = a_run(replace(SHAPE, seed=2, devices=20_000))
    other = kept(tmp_path / "b", (record, seconds))
    code, said = compare(base, other)
    assert code == 2
    assert "different scenarios (fleet differ): --anyway" in said
    code, said = compare(base, other, "--anyway")
    assert code == 0
    assert "! the scenarios differ: fleet" in said
    free = replace(record, scenario_text="[1]")
    assert scenario_differences(RUN[0], free) == ("their texts",)
    assert scenario_differences(free, replace(free, digest="x")) == ()


def test_a_generator_at_its_limit_makes_the_comparison_worth_nothing(base, tmp_path):
    record, seconds = RUN
    saturated = replace(record, verdict=Verdict(VerdictStatus.INCONCLUSIVE, 3), machine="another", operations={})
    code, said = compare(base, kept(tmp_path / "b", (saturated, seconds)))
    assert code == 3
    assert "B is inconclusive: its generator was the limit" in said
    assert "the machine differs" in said


def test_what_is_no_run_is_told_in_one_line(base, tmp_path):
    assert compare(base, tmp_path)[0] == 2
    with pytest.raises(ConfigurationError, match="not there"):
        compare_runs(tmp_path, base, Terms(drawings=200))


def second_of(number: int, count: int, value_s: float, operation: str = "http.poll") -> Second:
    times = Histogram()
    times.record_many([value_s] * count)
    tally = Tally(count, count, times.encode(), times.encode())
    return Second(number, {operation: {OutcomeClass.OK: tally}}, {}, GeneratorHealth())


def test_an_interval_covers_the_chance_between_blocks_and_not_that_between_answers():
    """Half the seconds are slow: a thousand answers are no thousand draws."""
    random = np.random.Generator(np.random.PCG64(5))
    seconds = [second_of(at, 50, 0.1 if random.random() < 0.5 else 0.01) for at in range(40)]
    sample = Sample(Drawings(blocks_of(seconds, lambda _: (("hold",), 40)), 1), "http.poll")
    ((median, drawn),) = sample.percentiles((50,))
    assert {round(value, 2) for value in drawn} == {0.01, 0.1}
    assert median == merged(
        [second.operations["http.poll"][OutcomeClass.OK].response for second in seconds]
    ).percentile(50)
    rate, rates = sample.rate((OutcomeClass.OK,))
    assert rate == 50
    assert np.allclose(rates, 50)


def test_a_drawing_without_an_answer_has_no_percentile():
    seconds = [second_of(at, 5 if at == 3 else 0, 0.02) for at in range(6)]
    sample = Sample(Drawings(blocks_of(seconds, lambda _: (("hold",), 6)), 1), "http.poll")
    (value, drawn) = sample.percentiles((99,))[0]
    assert value == pytest.approx(0.02, rel=1e-3)
    assert 0 < np.isnan(drawn).sum() < len(drawn)
    assert np.allclose(drawn[~np.isnan(drawn)], 0.02, rtol=1e-3)


def test_drawings_keep_each_stretch_as_long_as_it_was():
    """A storm of the plan is no chance: with one rate in each phase the rate of the run never varies."""
    seconds = [second_of(at, 10 if at < 30 else 200, 0.01) for at in range(40)]
    sample = Sample(
        Drawings(blocks_of(seconds, lambda at: (("hold",), 30) if at < 30 else (("storm",), 10)), 1), "http.poll"
    )
    rate, rates = sample.rate((OutcomeClass.OK,))
    assert rate == 57.5
    assert np.allclose(rates, 57.5)


def test_blocks_end_where_a_stretch_or_the_time_does():
    seconds = [second_of(at, 1, 0.01) for at in (0, 1, 2, 5, 6, 7, 8, 9, 10)]
    blocks = blocks_of(seconds, lambda at: ((("a",) if at < 8 else ("b",)), 27))
    assert [(block.stretch, block.seconds) for block in blocks] == [(("a",), 3), (("a",), 3), (("b",), 3)]
    assert [block_length_s(size) for size in (1, 4, 5, 27, 1000, 10_800)] == [1, 1, 1, 3, 10, 54]
    assert blocks_of([], lambda _: ((), 0)) == []


# --- what cannot be judged, and what other programs get -------------------------------------------------------------


@pytest.mark.parametrize("partial_is", ["A", "B"])
def test_a_run_that_did_not_end_is_neither_better_nor_worse_than_any_other(base, tmp_path, partial_is):
    record, seconds = a_run(replace(SHAPE, seed=2, slower=0.5))
    cut = replace(
        record,
        verdict=Verdict(VerdictStatus.INTERRUPTED, 130, ("ended by hand",)),
        partial="it ended after 80 s of 90 s",
    )
    other = kept(tmp_path / "cut", (cut, seconds))
    folders = (other, base) if partial_is == "A" else (base, other)
    assert set(findings(*folders).values()) <= {Finding.NOT_JUDGED}
    code, said = compare(*folders)
    assert code == 3
    assert f"nothing is judged: {partial_is} did not run to its end: it ended after 80 s of 90 s" in said


def test_a_run_that_lost_data_is_worse_and_nothing_of_it_is_better(base, tmp_path):
    record, seconds = a_run(replace(SHAPE, seed=2, slower=0.5))
    lost = replace(record, verdict=Verdict(VerdictStatus.LOST, 4, ("2 readings are not there",)))
    folder = kept(tmp_path / "lost", (lost, seconds))
    found = compare_runs(base, folder, Terms(drawings=200))
    assert found.count(Finding.BETTER) == 0
    assert found.count(Finding.NOT_JUDGED) > 0
    assert found.broken == ("B lost or changed data, and A did not",)
    code, said = compare(base, folder)
    assert code == 1
    assert "1 of what A held does not hold in B" in said


def test_a_threshold_that_held_before_and_does_not_now_is_worse(tmp_path):
    def run(name: str, slower: float) -> Path:
        record, seconds = a_run(replace(SHAPE, slower=slower))
        (result,) = judge_thresholds([parse("http.poll.p50 < 10ms")], record, seconds)
        verdict = (
            Verdict(VerdictStatus.PASSED, 0)
            if result.held
            else Verdict(VerdictStatus.FAILED, 1, ("a threshold did not hold",))
        )
        return kept(
            tmp_path / name, (replace(record, thresholds=(result,), scenario_text="", verdict=verdict), seconds)
        )

    folders = run("a", 1.0), run("b", 10.0)
    told = "the threshold http.poll.p50 < 10ms held in A, and does not in B"
    assert compare_runs(*folders, Terms(drawings=200)).broken == (told,)
    code, said = compare(*folders, "--margin", 100)
    assert code == 1
    assert told in said
    assert compare_runs(folders[0], folders[0], Terms(drawings=200)).broken == ()


def test_another_seed_is_said(base, other):
    assert "the seed differs: 1 and 2" in compare_runs(base, other, Terms(drawings=200)).warnings


def test_page_and_junit_say_what_the_terminal_does(base, tmp_path):
    slower = kept(tmp_path / "b", a_run(replace(SHAPE, seed=2, slower=1.3)))
    code, said = compare(base, slower, "--html", tmp_path / "c.html", "--junit", tmp_path / "c.xml", "--json")
    assert code == 1
    told = json.loads(said)
    page, suite = (tmp_path / "c.html").read_text(), ET.parse(tmp_path / "c.xml").getroot()
    xmlschema.validate(str(tmp_path / "c.xml"), str(SCHEMA))
    assert int(suite.get("failures")) == told["worse"] == page.count("pill kind-bad") > 0
    cases = {(case.get("classname"), case.get("name")): case for case in suite.iter("testcase")}
    assert len(cases) == len(told["differences"])
    assert cases["http.poll", "p50"].find("failure") is not None
    assert "worse: " in cases["http.poll", "p50"].find("failure").get("message")
    few = {(each["operation"], each["name"]) for each in told["differences"] if each["finding"] == "too few to say"}
    assert {key for key, case in cases.items() if case.find("skipped") is not None} == few
    assert f"B is worse in {told['worse']}" in page
    assert page.count("<svg") == sum(each["change"] is not None for each in told["differences"])
    assert "<script" not in page


def test_what_is_not_judged_is_an_error_for_ci_and_no_colour_on_the_page(base, tmp_path):
    record, seconds = a_run(replace(SHAPE, seed=2, slower=0.5))
    folder = kept(
        tmp_path / "b", (replace(record, verdict=Verdict(VerdictStatus.INCONCLUSIVE, 3, ("CPU at 99 %",))), seconds)
    )
    assert compare(base, folder, "--html", tmp_path / "c.html", "--junit", tmp_path / "c.xml")[0] == 3
    suite = ET.parse(tmp_path / "c.xml").getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    page = (tmp_path / "c.html").read_text()
    assert "nothing is judged: B is inconclusive: CPU at 99 %" in page
    assert not re.search(r"pill kind-(good|bad|same)", page)
    assert "pill kind-unjudged" in page
