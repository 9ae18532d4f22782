"""All reports of a run: of a good one, a bad one, a killed one; what other programs read of it; two runs compared."""

from __future__ import annotations

import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from rich.console import Console

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.fleet.metrics.histogram import merged
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import (
    AuditRecord,
    GeneratorHealth,
    RunRecord,
    Second,
    StreamAudit,
    Tally,
    ThresholdResult,
    Verdict,
    VerdictStatus,
)
from simulator.fleet.report.compare import BETTER, NOT_JUDGED, SAME, WORSE, compare_runs
from simulator.fleet.report.figures import ALL_OPERATIONS, Timeline, percentiles, run_figures
from simulator.fleet.report.junit import junit_xml
from simulator.fleet.report.making import FILES, make_reports
from simulator.fleet.report.page import fleet_page
from simulator.fleet.report.summary import print_summary
from tests.support.fleet_runs import Shape, a_run, kept

RECORD, SECONDS = a_run(Shape(duration_s=40, rate_per_s=60))
GOOD = Shape(duration_s=40, rate_per_s=60, good=True)
ATTACK = "<script>alert(1)</script>\"'&{{7*7}}\x00\u2028]]>"


def said_by(*words: object, code: int = 0) -> str:
    """What a command prints, in one line."""
    result = CliRunner().invoke(program, [*map(str, words)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_a_run_that_ended_gets_every_report(tmp_path):
    why = "http.poll: 503 unavailable"
    folder = kept(tmp_path / "run", replace(RECORD, extras={"errors": {"http.report: 409": 1, why: 12}}), SECONDS)
    said = said_by("report", folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    for text in ("Data was lost or changed.", "http.sensor_data", why, "2 lost", "report.html"):
        assert text in said
    page = (folder / "report.html").read_text()
    for text in ("Data was lost or changed.", "disconnect_storm", "killed by signal 9", "sim-004711", "steady-10k", why,
                 "sent by the generator"):  # fmt: skip
        assert text in page
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    said_by("report", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, "made anew it is the same"


def test_a_run_that_was_killed_is_judged_by_the_seconds_that_it_left(tmp_path):
    wanted = ("http.poll.p99 < 1h", "http.poll.p99 < 1us", "http.poll.p99 < 1h in last", "audit.lost == 0")
    waiting = tuple(ThresholdResult(each, held=False, observed=None, judged=False) for each in wanted)
    bare = replace(RECORD, operations={}, audit=None, thresholds=waiting, verdict=Verdict(VerdictStatus.PASSED, 0))
    folder = kept(tmp_path / "run", bare, SECONDS[:20], ends=False)
    with (folder / "seconds.jsonl").open("a") as file:
        file.write('{"second":20,"oper')
    said = said_by("report", folder)
    assert "its figures cover 20 seconds" in said
    made, _ = make_reports(folder)
    assert made.duration_s == 20
    polls = sum(second.operations["http.poll"][OutcomeClass.OK].count for second in SECONDS[:20])
    assert made.operations["http.poll"][OutcomeClass.OK].count == polls
    assert [(span.name, span.end_s) for span in made.phases] == [("ramp", 5), ("hold", 20)]
    judged = [result.held if result.judged else None for result in made.thresholds]
    assert judged == [True, False, None, None]
    assert (made.verdict.word, made.verdict.exit_code) == (VerdictStatus.INTERRUPTED, 130)
    assert made.verdict.sentences[1].startswith("http.poll.p99 < 1us: it was ")
    page = (folder / "report.html").read_text()
    assert "The run was cut short." in page
    assert "1 of 4 thresholds held so far" in page
    cases = {
        case.get("name"): [child.tag for child in case] for case in ET.parse(folder / "junit.xml").iter("testcase")
    }
    assert [cases[each] for each in wanted] == [[], ["failure"], ["skipped"], ["skipped"]]
    broken = replace(bare, thresholds=(replace(waiting[0], expression="http.poll.p99"),))
    with pytest.raises(ConfigurationError, match="damaged"):
        make_reports(kept(tmp_path / "broken", broken, SECONDS[:3], ends=False))


def test_a_run_without_a_single_second_or_answer_has_a_report_too(tmp_path):
    nothing = {"operations": {}, "audit": None, "thresholds": (), "scenario_text": "", "faults": (), "gaps": ()}
    bare = replace(RECORD, **nothing)
    said_by("report", kept(tmp_path / "none", bare, [], ends=False))
    limited = {"http.poll": {OutcomeClass.LIMITED: Tally(3, 3, "", "")}}
    record = replace(bare, operations=limited, duration_s=1.0, health=GeneratorHealth(), phases=())
    folder = kept(tmp_path / "limited", record, [Second(0, limited, {}, GeneratorHealth())])
    said_by("report", folder)
    assert "NaN" not in (folder / "report.html").read_text().partition('id="report-data"')[2].partition("</script>")[0]
    assert json.loads((folder / "summary.json").read_text())["figures"]["http.poll"]["outcomes"] == {"limited": 3}


def test_in_a_narrow_terminal_no_figure_is_cut_off():
    console = Console(file=io.StringIO(), width=80)
    name = "commands.age[restart_the_application].succeeded"
    print_summary(console, replace(RECORD, operations={**RECORD.operations, name: RECORD.operations["http.poll"]}))
    assert "…" not in console.file.getvalue()


def test_nothing_says_that_nothing_was_lost_while_the_audit_is_not_complete():
    def told(audit: AuditRecord) -> tuple[str, str]:
        console = Console(file=io.StringIO(), width=200)
        record = replace(RECORD, audit=audit)
        print_summary(console, record)
        badge = re.search(r"</span>(.*?)</p>\s*<h1>", fleet_page(record, Timeline.of(record)))[1]
        return badge, console.file.getvalue()

    good = StreamAudit(9, 9, 9, 0, 0, 0, 0)
    whole, open_, lossy = (
        told(AuditRecord(stream, None, complete=complete))
        for stream, complete in ((good, True), (good, False), (replace(good, lost=2), False))
    )
    assert whole[0].endswith("audit: nothing lost, doubled or altered")
    assert open_[0].endswith("audit: not complete")
    assert lossy[0].endswith("audit: 2 lost, not complete")
    assert "nothing lost" in whole[1]
    assert "nothing lost" not in open_[1]
    assert "audit: not complete" in open_[1]
    unjudged = AuditRecord(replace(good, lost=2), None, complete=False, unjudged=("the service answered 503",))
    cases = {case.get("name"): case for case in junit_of(replace(RECORD, audit=unjudged)).iter("testcase")}
    assert cases["readings lost"].find("failure") is not None
    doubled = cases["readings doubled"].find("skipped")
    assert doubled.get("message") == "not judged: not everything that it takes could be read back"
    assert cases["complete"].find("failure").get("message") == "the service answered 503"


def junit_of(record: RunRecord) -> ET.Element:
    """The file of a run, which any reader takes; no time in it is 0."""
    root = ET.fromstring(junit_xml(record))
    times = [float(element.get("time")) for element in root.iter() if "time" in element.keys()]  # noqa: SIM118
    assert all(time > 0 for time in times)
    return root


def failed_cases(root: ET.Element) -> dict[str, str]:
    return {
        case.get("name"): child.get("message")
        for case in root.iter("testcase")
        for child in case
        if child.tag in {"failure", "error"}
    }


BARRIER = "phase hold: 'open_commands == 0' did not come true within 60 s after its end"


def test_junit_has_every_finding_and_every_sentence_of_the_verdict_also_where_several_failed_together():
    """A barrier, a threshold, the audit, and something that no check is about."""
    strange = "7 commands were refused: 400 bad"
    sentences = (
        "readings: 2 lost of 4,711 sent",
        BARRIER,
        strange,
        *(result.missed_text for result in RECORD.thresholds if not result.held),
    )
    root = junit_of(replace(RECORD, verdict=Verdict(VerdictStatus.LOST, 4, sentences)))
    assert failed_cases(root) == {
        "hold": BARRIER,
        "http.poll.failed.rate < 1%": RECORD.thresholds[1].missed_text,
        "audit.lost == 0": RECORD.thresholds[2].missed_text,
        "readings lost": f"2 of {RECORD.audit.readings.sent:,} sent: sim-004711",
        "readings altered": f"5 of {RECORD.audit.readings.sent:,} sent: sim-000017",
        "readings: 2 lost of 4,711 sent": "readings: 2 lost of 4,711 sent",
        strange: strange,
    }
    assert set(sentences) <= set(failed_cases(root).values())
    assert (root.get("failures"), root.get("errors")) == ("7", "0")


def test_junit_of_a_run_that_says_nothing_of_the_target_has_an_error_for_each_reason():
    reasons = ("the generator was the limit", "worker 1 did not report from 3 s to 4 s: killed")
    sentences = (*reasons, RECORD.thresholds[1].missed_text)
    root = junit_of(replace(RECORD, verdict=Verdict(VerdictStatus.INCONCLUSIVE, 3, sentences)))
    errors = [error.get("message") for error in root.iter("error")]
    assert (tuple(errors), root.get("errors")) == (reasons, "2")
    good, _ = a_run(GOOD)
    root = junit_of(good)
    assert failed_cases(root) == {}
    assert [case.get("name") for case in root.iter("testcase") if case.get("classname") == "run"] == ["verdict"]
    cut = replace(RECORD, audit=replace(RECORD.audit, complete=False, sentences=("the target went away",)))
    assert failed_cases(junit_of(cut))["complete"] == "the target went away"


def test_a_long_run_is_merged_and_no_percentile_is_averaged():
    widths = [Timeline.of(replace(RECORD, duration_s=seconds)).width_s for seconds in (0, 720, 721, 86_400)]
    assert widths == [1, 1, 2, 120]
    timeline = Timeline(RECORD.phases, 5)
    for second in SECONDS:
        timeline.add(second)
    timeline.end()
    slices = timeline.slices
    assert [*slices] == [0, 5, 10, 15, 20, 25, 30, 35]
    # Of the gap from 24 to 28 s one second each is left on both sides: rates are over what was reported.
    assert [each["seconds"] for each in slices.values()] == [5, 5, 5, 5, 4, 2, 5, 5]
    inside = [second for second in SECONDS if 15 <= second.second < 20]
    true = merged([second.operations["http.poll"][OutcomeClass.OK].response for second in inside])
    assert slices[15]["figures"]["http.poll"]["response_s"] == percentiles(true)
    everything = merged([kinds[OutcomeClass.OK].service for second in inside for kinds in second.operations.values()])
    assert slices[15]["figures"][ALL_OPERATIONS]["service_s"] == percentiles(everything)
    assert slices[15]["gauges"]["online"] == {"low": 5000.0, "high": 10_000.0}, "a fault of three seconds is seen"
    lag = merged([second.health.send_lag for second in inside])
    assert slices[15]["generator"]["send_lag_p99_s"] == lag.percentile(99)
    counts = [sum(kinds[OutcomeClass.OK].count for kinds in sums.values()) for _, sums in timeline.phases]
    assert sum(counts) == sum(figures.good for figures in run_figures(RECORD).operations.values())
    assert [span.name for span, _ in timeline.phases] == ["ramp", "hold", "storm"]


def test_the_page_escapes_everything_and_loads_nothing(tmp_path):
    nasty = replace(
        RECORD,
        name=ATTACK, scenario_text=ATTACK, target=ATTACK, machine=ATTACK,
        verdict=Verdict(VerdictStatus.FAILED, 1, (ATTACK,)),
        phases=(replace(RECORD.phases[0], name=ATTACK, kind=ATTACK),),
        thresholds=(ThresholdResult(ATTACK, held=False, observed=1.0, unit=ATTACK),), extras={ATTACK: {ATTACK: 1}},
        operations={ATTACK: RECORD.operations["http.poll"]},
    )  # fmt: skip
    folder = kept(tmp_path / "run", nasty, SECONDS)
    make_reports(folder)
    page = (folder / "report.html").read_text()
    assert re.findall(r"<link|\bsrc(?:set)?=", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)) == []
    assert page.count("<script") == 3, "the data, uPlot and what draws"
    assert "<script>alert" not in page
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", page)[0]
    assert json.loads((folder / "summary.json").read_text())["name"] == ATTACK
    assert "default-src 'none'" in html.unescape(page)


# --- two runs held against each other ---------------------------------------------------------------------------------


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return kept(tmp_path / "a", *a_run(GOOD))


def findings(found) -> dict[tuple[str, str], str]:
    return {(each["operation"], each["name"]): each["finding"] for each in found["differences"]}


def test_the_same_plan_with_other_chances_is_not_worse(base, tmp_path):
    found = compare_runs(base, kept(tmp_path / "b", *a_run(replace(GOOD, seed=2))))
    assert found["compared"] == ["hold", "storm"]
    assert findings(found)["http.poll", "ok per second"] == SAME
    assert findings(found)["http.poll", "p50"] == SAME


def test_a_slower_run_is_worse_and_the_other_way_round_better(base, tmp_path):
    slower = kept(tmp_path / "b", *a_run(replace(GOOD, slower=1.9)))
    assert findings(compare_runs(base, slower))["http.poll", "p50"] == WORSE
    assert findings(compare_runs(slower, base))["http.poll", "p50"] == BETTER
    assert "B is worse in" in said_by("compare", base, slower, code=1)
    document = json.loads(said_by("compare", base, slower, "--json", code=1))
    assert (document["worse"] > 0, document["a"]["verdict"]) == (True, "passed")
    said_by("compare", base, base)


def test_a_threshold_that_no_longer_holds_is_worse_and_nothing_is_better_of_a_run_that_lost_data(base, tmp_path):
    record, seconds = a_run(replace(GOOD, slower=0.5))
    held = ThresholdResult("http.poll.p99 < 1s", held=True, observed=0.1)
    one = kept(tmp_path / "one", replace(record, thresholds=(held,)), seconds)
    lost = Verdict(VerdictStatus.LOST, 4, ("2 lost",))
    other = kept(tmp_path / "other", replace(record, thresholds=(replace(held, held=False),), verdict=lost), seconds)
    assert compare_runs(one, other)["broken"] == [
        "B lost or changed data, and A did not",
        "the threshold http.poll.p99 < 1s held in A, and does not in B",
    ]
    assert BETTER not in findings(compare_runs(base, other)).values()


def test_a_run_that_proves_nothing_is_not_judged(base, tmp_path):
    record, seconds = a_run(replace(GOOD, slower=1.9))
    verdict = Verdict(VerdictStatus.INCONCLUSIVE, 3, ("the generator stood still for 8.0 s",))
    other = kept(tmp_path / "b", replace(record, verdict=verdict), seconds)
    assert set(findings(compare_runs(base, other)).values()) == {NOT_JUDGED}
    said = said_by("compare", base, other, code=3)
    assert "nothing is judged: B is inconclusive: the generator stood still" in said


def test_what_cannot_be_compared_is_refused(base, tmp_path):
    record, seconds = a_run(GOOD)
    one, another = ("scenario: steady", "scenario: steady\nkind: requests")
    other = kept(tmp_path / "b", replace(record, digest="another", scenario_text=another), seconds)
    base = kept(tmp_path / "one", replace(record, scenario_text=one), seconds)
    with pytest.raises(ConfigurationError, match="are runs of different scenarios"):
        compare_runs(base, other)
    said_by("compare", base, tmp_path / "nothing", code=2)
