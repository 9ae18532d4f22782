"""Runs of checks as JUnit XML: what any reader takes."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from simulator.report_parts.junit import Check, CheckRun, Mark, junit_xml

NASTY = "a<b>&\"'\x00\x1b]]></failure>\ud800\U0001f600<script>alert(1)</script>"


def run_of(*checks, **more):
    members = {"title": "t", "checks": checks, **more}
    return CheckRun(**members)


RUN = run_of(
    Check("one", "good", "A good one.", Mark.GOOD, seconds=0.5),
    Check("one", "bad", "A bad one.", Mark.BAD, "register: expected x, answered y", 0.25),
    Check("two", "untimed", "Allowed.", Mark.GOOD, "nobody measured it"),
    Check("two", "skipped", "Not played.", Mark.SKIPPED, "it needs a second account"),
    problems=("stopped: no service", "and cut short"),
    began_at="2026-01-01T00:00:00.000Z",
)


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        run_of(),
        run_of(*(Check(NASTY, NASTY, NASTY, mark, NASTY, 1e-9) for mark in Mark)),
    ],
)
def test_the_junit_file_is_well_formed_and_its_counts_are_right(run):
    text = junit_xml(run)
    root = ET.fromstring(text.encode())
    cases = root.findall("testsuite/testcase")
    assert int(root.get("tests")) == len(cases) == len(run.checks) + len(run.problems)
    assert (
        int(root.get("failures"))
        == len(root.findall(".//failure"))
        == sum(check.mark is Mark.BAD for check in run.checks)
    )
    for suite in root:
        assert int(suite.get("tests")) == len(suite)
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
        assert int(suite.get("skipped", "0")) == len(suite.findall("testcase/skipped"))


def test_each_problem_is_an_error_and_what_nobody_measured_has_no_time():
    root = ET.fromstring(junit_xml(RUN).encode())
    assert [error.get("message") for error in root.iter("error")] == list(RUN.problems)
    times = {case.get("name"): case.get("time") for case in root.iter("testcase")}
    assert times == {
        "good": "0.500000", "bad": "0.250000", "untimed": None, "skipped": None, **dict.fromkeys(RUN.problems),
    }  # fmt: skip
    assert [suite.get("time") for suite in root] == ["0.750000", None, None]
    assert root.get("time") == "0.750000"
