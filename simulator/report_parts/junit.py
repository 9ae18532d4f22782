"""A run of checks as JUnit XML, for the page that a CI system makes of it.

There is no specification. The file keeps to what Jenkins' xUnit plug-in takes (its ``junit-10.xsd``), which is what
GitLab, GitHub actions and the like read too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from xml.etree import ElementTree as ET

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SECONDS: Final = ".6f"


class Mark(StrEnum):
    """How a check ended."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check and how it ended.

    Attributes:
        group: checks of a kind stand together.
        name: unique in the group.
        title: a sentence.
        reason: why it is bad or skipped; of a good one what a reader may want to know.
        seconds: how long it took; None when nobody measured.
    """

    group: str
    name: str
    title: str
    mark: Mark
    reason: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CheckRun:
    """All checks of one run.

    Attributes:
        title: what was run.
        checks: in the order of the run.
        problems: what concerns the run as a whole.
        began_at: RFC 3339.
        seconds: how long all of it took; None: as long as its checks together.
        group_seconds: how long the checks of a group took that went on at the same time; of others the sum counts.
    """

    title: str
    checks: tuple[Check, ...]
    problems: tuple[str, ...] = ()
    began_at: str = ""
    seconds: float | None = None
    group_seconds: Mapping[str, float] = field(default_factory=dict)

    def groups(self) -> dict[str, list[Check]]:
        """The checks by group, in the order of their first."""
        found: dict[str, list[Check]] = {}
        for check in self.checks:
            found.setdefault(check.group, []).append(check)
        return found


def junit_xml(run: CheckRun) -> str:
    """The whole file as text, to be written as UTF-8: one suite for each group, one for problems of the run.

    What nobody measured has no time in it: a reader would take 0 for a time.
    """
    root = ET.Element("testsuites", {"name": _clean(run.title), **_counts(run.checks)})
    _set_time(root, run.seconds if run.seconds is not None else _sum(run.checks))
    for group, checks in run.groups().items():
        suite = ET.SubElement(
            root, "testsuite", {"name": _clean(group), **_counts(checks), "skipped": _skipped(checks)}
        )
        _set_time(suite, run.group_seconds[group] if group in run.group_seconds else _sum(checks))
        if run.began_at:
            suite.set("timestamp", run.began_at)
        for check in checks:
            _add_case(suite, check)
    if run.problems:
        count = str(len(run.problems))
        suite = ET.SubElement(root, "testsuite", name="run", tests=count, failures="0", errors=count)
        for problem in map(_clean, run.problems):
            case = ET.SubElement(suite, "testcase", classname="run", name=problem)
            ET.SubElement(case, "error", message=problem, type="run").text = problem
        root.set("errors", count)
        root.set("tests", str(len(run.checks) + len(run.problems)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(checks: Sequence[Check]) -> dict[str, str]:
    return {
        "tests": str(len(checks)),
        "failures": str(sum(check.mark is Mark.BAD for check in checks)),
        "errors": "0",
    }


def _sum(checks: Iterable[Check]) -> float:
    return sum(check.seconds or 0.0 for check in checks)


def _set_time(element: ET.Element, seconds: float | None) -> None:
    if seconds:
        element.set("time", format(seconds, _SECONDS))


def _skipped(checks: list[Check]) -> str:
    return str(sum(check.mark is Mark.SKIPPED for check in checks))


def _add_case(suite: ET.Element, check: Check) -> None:
    case = ET.SubElement(suite, "testcase", classname=_clean(check.group), name=_clean(check.name))
    _set_time(case, check.seconds)
    if check.mark is Mark.SKIPPED:
        ET.SubElement(case, "skipped", message=_clean(check.reason))
    if check.mark is Mark.BAD:
        failure = ET.SubElement(case, "failure", message=_clean(check.reason), type="check")
        failure.text = _clean(check.title)


def _clean(text: str) -> str:
    """The text without what XML 1.0 cannot hold (section 2.2)."""
    return _NOT_XML.sub("\ufffd", text)
