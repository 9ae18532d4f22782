"""Many runs of one scenario: what is worse by the rule is said, and what cannot be judged is never said to be good."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from click.testing import CliRunner

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.fleet.metrics.ages import READING_AGE
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, RunRecord, Second, Tally, Verdict, VerdictStatus
from simulator.fleet.report.compare import Finding
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.history import BASELINE_MAX, BASELINE_MIN, History, headline_values, history_of
from simulator.fleet.report.page.comparison import history_page
from tests.fleet_runs import Shape, a_run

SCHEMA = Path(__file__).parents[2] / "report_parts" / "junit.xsd"
WHOLE, _ = a_run(Shape(duration_s=40, rate_per_s=40, good=True))
PLAIN = replace(WHOLE, thresholds=(), scenario_text=WHOLE.scenario_text.partition("thresholds:")[0])
LATE, POLLS = "readings.age p99", "http.poll p99"
CUT = {"partial": "it ended after 9 s of 40 s", "verdict": Verdict(VerdictStatus.INTERRUPTED, 130)}


def run_of(day: int, age_s: float = 1.0, *, accepted: int = 1000, **changes: object) -> RunRecord:
    """A run of that day of the month whose readings are all this old."""
    times = Histogram()
    times.record_many([age_s] * accepted)
    text = times.encode()
    ages = {READING_AGE: {OutcomeClass.OK: Tally(accepted, accepted, text, text)}}
    began_at = f"2026-03-{day:02d}T02:00:00Z"
    return replace(PLAIN, ages=ages, began_at=began_at, ended_at=f"2026-03-{day:02d}T02:01:00Z", **changes)


def kept(folder: Path, records: list[RunRecord]) -> Path:
    """Folders of runs whose seconds fit them: everything happened in the first second."""
    for number, record in enumerate(records):
        with RunFolder(folder / f"run-{number}") as run:
            run.append(Second(0, {**record.operations, **record.ages}, {}, record.health))
            for second in range(1, int(record.duration_s)):
                run.append(Second(second, {}, {}, GeneratorHealth()))
            run.finish(record)
    return folder


def history(tmp_path: Path, *records: RunRecord, **terms: object) -> History:
    return history_of([kept(tmp_path / "runs", list(records))], **terms)


def compare(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(program, ["compare", "--history", *map(str, arguments)], standalone_mode=False)
    if result.exception is None:
        return int(result.return_value), result.output
    return getattr(result.exception, "exit_code", -1), str(getattr(result.exception, "message", result.exception))


def days(*ages_s: float) -> list[RunRecord]:
    return [run_of(day, age_s) for day, age_s in enumerate(ages_s, 1)]


def findings(found: History, name: str = LATE) -> list[Finding]:
    return [run.figures[name].finding for run in found.runs]


ALIKE = (1.0,) * BASELINE_MIN
FEW, SAME, WORSE, BETTER = Finding.TOO_FEW, Finding.NOT_SHOWN, Finding.WORSE, Finding.BETTER


@pytest.mark.parametrize(
    ("ages_s", "expected"),
    [
        ((1.2,), [WORSE]),
        ((1.09,), [SAME]),  # less than the margin
        ((0.8,), [BETTER]),
        ((2.0,) * 6, [WORSE] * 5 + [SAME]),  # marked until half of the runs before are like that
        ((2.0, 1.0), [WORSE, SAME]),
    ],
)
def test_worse_is_what_is_beyond_the_runs_before_it_and_the_margin(tmp_path, ages_s, expected):
    found = history(tmp_path, *days(*ALIKE, *ages_s))
    assert findings(found) == [FEW] * BASELINE_MIN + expected
    assert found.is_worse is (expected[-1] is WORSE)
    assert found.unjudged == ""


def test_runs_that_differ_much_from_each_other_are_given_more_room(tmp_path):
    """Their median is 1.0 s, and the median distance from it 0.1 s: up to 1.5 s, and down to 0.5 s."""
    for age_s, expected in ((1.48, SAME), (1.52, WORSE), (0.52, SAME), (0.48, BETTER)):
        found = history(tmp_path / str(age_s), *days(0.8, 1.2, 1.0, 0.9, 1.1, age_s))
        assert findings(found)[-1] is expected


def test_only_the_last_runs_are_the_measure(tmp_path):
    old, new = [2.0] * 3, [1.0] * BASELINE_MAX
    found = history(tmp_path, *days(*old, *new, 1.5))
    assert findings(found)[-1] is WORSE
    assert found.latest.figures[LATE].against == BASELINE_MAX


def test_a_lower_rate_is_worse_and_shares_are_held_against_points(tmp_path):
    rates = [run_of(day, accepted=1000) for day in range(1, 6)]
    found = history(tmp_path / "rate", *rates, run_of(6, accepted=850))
    assert findings(found, "readings accepted per second")[-1] is WORSE
    assert found.latest.names(WORSE) == ("readings accepted per second",)
    # One of a hundred errors is a point: as much as the margin of 10 % allows shares.
    tally = PLAIN.operations["http.poll"][OutcomeClass.OK]
    every = sum(each.count for classes in PLAIN.operations.values() for each in classes.values())

    def failing(day: int, share: float) -> RunRecord:
        bad = {OutcomeClass.SERVER_ERROR: replace(tally, count=round(every * share))}
        operations = {**PLAIN.operations, "http.poll": {**PLAIN.operations["http.poll"], **bad}}
        return run_of(day, operations=operations)

    for share, expected in ((0.008, SAME), (0.015, WORSE)):
        found = history(tmp_path / str(share), *(run_of(day) for day in range(1, 6)), failing(6, share))
        assert findings(found, "errors")[-1] is expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"verdict": Verdict(VerdictStatus.INCONCLUSIVE, 3, ("the generator was late",))},
            "is inconclusive: the generator was late",
        ),
        (CUT, "did not run to its end: it ended after 9 s of 40 s"),
        (
            {"verdict": Verdict(VerdictStatus.UNREACHABLE, 5, ("the target went away",))},
            "did not run to its end: the target went",
        ),
    ],
)
def test_a_run_that_says_nothing_of_its_target_is_never_better_nor_the_measure(tmp_path, changes, said):
    good = days(*ALIKE)
    found = history(tmp_path / "last", *good, run_of(6, 0.1, **changes))
    assert findings(found)[-1] is Finding.NOT_JUDGED
    assert said in found.unjudged
    code, told = compare(tmp_path / "last" / "runs")
    assert code == 3
    assert "nothing is judged" in told
    assert "better in" not in told
    between = history(tmp_path / "between", *good, run_of(6, 9.0, **changes), run_of(7, 1.5))
    assert findings(between)[-2:] == [Finding.NOT_JUDGED, WORSE]
    assert between.latest.figures[LATE].against == 5


def _shortened(run: Path) -> str:
    path = run / "seconds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    return "seconds.jsonl lacks 3 of 40 seconds"


def _changed(run: Path) -> str:
    path = run / "run.json"
    record = json.loads(path.read_text())
    record["operations"]["http.poll"]["ok"]["count"] += 1
    path.write_text(json.dumps(record))
    return "seconds.jsonl and run.json differ: http.poll ok"


def _garbled(run: Path) -> str:
    path = run / "seconds.jsonl"
    path.write_text(path.read_text().replace('"second": 3', '"second": "x"').replace('"second":3', '"second":"x"'))
    return "seconds.jsonl"


@pytest.mark.parametrize("damage", [_shortened, _changed, _garbled])
def test_a_run_whose_seconds_do_not_fit_its_record_is_not_judged_and_no_measure(tmp_path, damage):
    folder = kept(tmp_path / "runs", days(*ALIKE, 1.0))
    assert compare(folder)[0] == 0
    reason = damage(folder / "run-5")
    code, said = compare(folder)
    assert code == 3
    assert "nothing is judged: the latest run has files that do not fit together" in " ".join(said.split())
    assert reason in " ".join(said.split())
    between = kept(tmp_path / "between", days(*ALIKE, 9.0, 1.5))
    damage(between / "run-5")
    found = history_of([between])
    assert findings(found)[-2:] == [Finding.NOT_JUDGED, WORSE]
    assert found.latest.figures[LATE].against == 5


def test_a_run_that_lost_data_is_worse_whatever_its_figures_are(tmp_path):
    lost = run_of(6, 0.1, verdict=Verdict(VerdictStatus.LOST, 4, ("2 readings are not there",)))
    found = history(tmp_path, *days(*ALIKE), lost)
    assert findings(found)[-1] is Finding.NOT_JUDGED
    assert found.is_worse
    code, said = compare(tmp_path / "runs")
    assert code == 1
    assert "The latest run lost or changed data." in said


def test_too_few_runs_are_no_pass(tmp_path):
    code, said = compare(kept(tmp_path / "runs", days(*ALIKE)))
    assert code == 3
    assert "fewer than 5 runs before the latest one can be compared with it" in said
    code, said = compare(kept(tmp_path / "one", days(1.0)))
    assert (code, "1 run: a history takes two or more" in said) == (2, True)


def test_runs_of_several_scenarios_are_refused_and_one_of_them_is_chosen(tmp_path):
    other = run_of(9, name="storm", scenario_text=PLAIN.scenario_text.replace("steady-10k", "storm"))
    folder = kept(tmp_path / "runs", [*days(*ALIKE, 1.0), other])
    code, said = compare(folder)
    assert (code, said) == (2, "runs of several scenarios: steady-10k (6), storm (1): choose one with --scenario")
    assert compare(folder, "--scenario", "steady-10k")[0] == 0
    assert "0 runs of the scenario calm" in compare(folder, "--scenario", "calm")[1]


def test_a_run_of_a_scenario_that_was_changed_since_is_shown_and_is_no_measure(tmp_path):
    text = PLAIN.scenario_text.replace("devices: 10000", "devices: 9")
    assert text != PLAIN.scenario_text
    old = [run_of(day, scenario_text=text, digest="other", devices=9) for day in range(1, 6)]
    folder = kept(tmp_path / "runs", [*old, run_of(6)])
    code, said = compare(folder)
    assert code == 3
    assert "is of another scenario than the latest one (fleet differ)" in " ".join(said.split())
    code, said = compare(folder, "--anyway")
    assert code == 0
    assert "! the scenarios differ" in said


def test_other_seeds_and_versions_are_said(tmp_path):
    records = days(*ALIKE, 1.0)
    records[2] = replace(records[2], seed=77, version="9.9.9")
    found = history(tmp_path, *records)
    assert "the seed differs: 1, 77" in found.notes
    assert "the version differs: 0.8.0, 9.9.9" in found.notes


def test_a_damaged_run_in_a_folder_is_left_out_and_named_and_a_named_one_is_refused(tmp_path):
    folder = kept(tmp_path / "runs", days(*ALIKE, 1.0))
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    code, said = compare(folder)
    assert code == 0
    assert "left out:" in said
    assert "broken" in said
    with pytest.raises(ConfigurationError, match="broken"):
        history_of([folder, folder / "broken"])
    with pytest.raises(ConfigurationError, match="neither a run"):
        history_of([tmp_path / "nowhere"])


def test_a_run_counts_once_however_often_it_is_named_and_the_order_is_that_of_time(tmp_path):
    folder = kept(tmp_path / "runs", list(reversed(days(*ALIKE, 1.3))))
    found = history_of([folder, folder / "run-0", folder])
    assert len(found.runs) == 6
    assert [run.record.began_at for run in found.runs] == sorted(run.record.began_at for run in found.runs)
    assert found.latest.folder.name == "run-0"
    assert found.is_worse


def test_options_for_two_runs_are_refused_and_the_other_way_round(tmp_path):
    folder = kept(tmp_path / "runs", days(*ALIKE, 1.0))
    assert "--phase, --confidence: for two runs only" in compare(folder, "--phase", "hold", "--confidence", 95)[1]
    result = CliRunner().invoke(program, ["compare", str(folder)])
    assert (result.exit_code, "1 folder: name two runs" in result.output) == (2, True)
    result = CliRunner().invoke(program, ["compare", str(folder / "run-0"), str(folder / "run-1"), "--scenario", "x"])
    assert (result.exit_code, "--scenario chooses among" in result.output) == (2, True)


def test_every_way_to_read_it_says_the_same(tmp_path):
    folder = kept(tmp_path / "runs", [*days(*ALIKE, 1.6), run_of(7, 0.2, **CUT), run_of(8, 1.5)])
    code, said = compare(folder, "--json", "--html", tmp_path / "h.html", "--junit", tmp_path / "h.xml")
    assert code == 1
    told = json.loads(said)
    assert [run["figures"][LATE]["finding"] for run in told["runs"]][-3:] == ["worse", "not judged", "worse"]
    assert told["runs"][-1]["figures"][LATE]["limit"] == pytest.approx(1.1, rel=0.001)
    assert (
        told["conclusion"] == f"The latest run is worse in 2, better in 0 of {len(told['runs'][0]['figures'])} figures"
    )
    xmlschema.validate(str(tmp_path / "h.xml"), str(SCHEMA))
    suite = ET.parse(tmp_path / "h.xml").getroot()
    failed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed == ["readings.age p50", LATE]
    page = (tmp_path / "h.html").read_text()
    assert told["conclusion"] in page
    assert page.count("<figure") == len(told["runs"][-1]["figures"])
    assert page.count('<circle class="bad"') == 4
    assert page.count('<circle class="good"') == 0
    assert "the limit 1.10 s" in page
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    code, said = compare(folder)
    assert code == 1
    for text in (told["conclusion"], "not judged: it did not run to its end", "Worse: further from the median"):
        assert text in said


def test_an_unjudged_history_is_an_error_for_ci_and_no_success(tmp_path):
    folder = kept(tmp_path / "runs", [*days(*ALIKE), run_of(6, **CUT)])
    assert compare(folder, "--junit", tmp_path / "h.xml")[0] == 3
    suite = ET.parse(tmp_path / "h.xml").getroot()
    assert suite.get("errors") == "1"
    figures = [case for case in suite.iter("testcase") if case.get("classname") == "latest run"]
    assert figures
    assert all(case.find("skipped") is not None for case in figures)


def test_a_page_escapes_what_runs_say(tmp_path):
    attack = "<script>alert(1)</script>"
    changes = {"name": attack, "target": attack, "version": attack, "scenario_text": ""}
    records = [replace(record, **changes) for record in days(*ALIKE, 1.0)]
    page = history_page(history(tmp_path, *records))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_polls_that_are_held_on_purpose_and_rates_of_a_drain_are_no_figures():
    tally = PLAIN.operations["http.poll"][OutcomeClass.OK]
    record = run_of(1, operations={"http.long_poll": {OutcomeClass.OK: tally}}, drained_from_s=20.0)
    found = headline_values(record)
    assert "http.long_poll p99" not in found
    assert found["readings accepted per second"][1] == 50


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    folder = kept(tmp_path / "runs", days(*ALIKE, 1.0))
    code, said = compare(folder, "--html", tmp_path / "missing" / "h.html")
    assert code == 5
    assert "cannot be written" in said
