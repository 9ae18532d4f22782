"""Runs of checks as JUnit XML and as a page: what any reader takes, and nothing that leaves the file."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from simulator.report_parts.checks import Check, CheckRun, CheckStep, Fact, Mark
from simulator.report_parts.checks_page import checks_page
from simulator.report_parts.junit import junit_xml

NASTY = "a<b>&\"'\x00\x1b]]></failure>\ud800\U0001f600<script>alert(1)</script>"


def step(mark=Mark.GOOD, **more):
    return CheckStep(
        **{"name": "scan", "mark": mark, "expected": "shown", "answered": "shown", "seconds": 0.01, **more}
    )


def run_of(*checks, **more):
    members = {"title": "t", "headline": "h", "lead": "l", "facts": (Fact("n", "1", "note"),), "checks": checks, **more}
    return CheckRun(**members)


RUN = run_of(
    Check("one", "good", "A good one.", Mark.GOOD, seconds=0.5, steps=(step(),)),
    Check(
        "one", "bad", "A bad one.", Mark.BAD, "register: expected x, answered y", 0.25, (step(Mark.BAD, detail="d"),)
    ),
    Check("two", "noted", "Allowed.", Mark.NOTED, "the specification is silent", steps=(step(Mark.NOTED),)),
    Check("two", "skipped", "Not played.", Mark.SKIPPED, "it needs a second account"),
    problems=("stopped: no service", "and cut short"),
    began_at="2026-01-01T00:00:00.000Z",
)


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        run_of(),
        run_of(*(Check(NASTY, NASTY, NASTY, mark, NASTY, 1e-9, (step(mark, detail=NASTY),)) for mark in Mark)),
    ],
)
def test_the_junit_file_is_well_formed_and_its_counts_are_right(run):
    text = junit_xml(run)
    root = ET.fromstring(text.encode())
    cases = root.findall("testsuite/testcase")
    assert int(root.get("tests")) == len(cases) == len(run.checks) + len(run.problems)
    assert int(root.get("failures")) == len(root.findall(".//failure")) == run.count(Mark.BAD)
    for suite in root:
        assert int(suite.get("tests")) == len(suite)
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
        assert int(suite.get("skipped", "0")) == len(suite.findall("testcase/skipped"))


def test_each_problem_is_an_error_and_what_nobody_measured_has_no_time():
    root = ET.fromstring(junit_xml(RUN).encode())
    assert [error.get("message") for error in root.iter("error")] == list(RUN.problems)
    times = {case.get("name"): case.get("time") for case in root.iter("testcase")}
    assert times == {
        "good": "0.500000", "bad": "0.250000", "noted": None, "skipped": None, **dict.fromkeys(RUN.problems),
    }  # fmt: skip
    assert [suite.get("time") for suite in root] == ["0.750000", None, None]
    assert root.get("time") == "0.750000"


def test_a_failure_tells_the_whole_story_of_its_steps():
    failure = ET.fromstring(junit_xml(RUN).encode()).find(".//failure")
    assert failure.get("message") == "register: expected x, answered y"
    assert failure.text == "A bad one.\nbad: scan; expected shown; answered shown; d"


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.loaded += [value for name, value in attrs if name in {"src", "href"} and not value.startswith("#")]


def test_the_page_shows_every_check_escapes_everything_and_loads_nothing():
    nasty = Check("g", NASTY, NASTY, Mark.BAD, NASTY, steps=(step(Mark.BAD, detail=NASTY),))
    page = checks_page(run_of(*RUN.checks, nasty, problems=RUN.problems))
    parser = Links()
    parser.feed(page)
    assert parser.loaded == []
    assert "<script" not in page
    for text in ("A good one.", "the specification is silent", "it needs a second account", "stopped: no service"):
        assert text in page
    assert len(re.findall("<tr class=wrong>", page)) == 2


def test_of_thousands_of_good_checks_the_page_shows_some_and_every_bad_one_first():
    checks = [Check("labels", f"SN-{n}", "registered", Mark.BAD if n == 1900 else Mark.GOOD) for n in range(2000)]
    page = checks_page(run_of(*checks))
    assert "1499 more good ones are in report.json" in page
    assert page.index("SN-1900") < page.index("SN-0")
    assert len(page) < 600_000
