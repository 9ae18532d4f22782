"""A run as JUnit XML, for the page that a CI system makes of it: a case for each thing that was checked.

A case for each phase, which fails with its barrier, for each threshold, and for each count of the audit. A sentence of
the verdict that none of these says in the same words is a case of its own, so that a run that did not pass is never
without one. It is an error, instead of a failure, where the run says nothing about the target: its generator was at the
limit, or it ended early. Only phases have a time.

There is no specification. The file keeps to what Jenkins' xUnit plug-in takes (its ``junit-10.xsd``), which is what
GitLab, GitHub actions and the like read too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from simulator.fleet.record import WRONGS, RunRecord, VerdictStatus
from simulator.fleet.report.figures import spans_with_drain
from simulator.fleet.report.formatting import VERDICT_WORDS

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INCOMPLETE: Final = {VerdictStatus.INCONCLUSIVE, VerdictStatus.UNREACHABLE, VerdictStatus.INTERRUPTED}
_RESULTS: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}


class _Case(NamedTuple):
    """One thing that was checked.

    Attributes:
        result: the element of a case that is not good: ``failure``, ``error`` or ``skipped``; empty for a good one.
        text: why.
        seconds: how long it took; 0 where that was not measured.
    """

    suite: str
    name: str
    result: str = ""
    text: str = ""
    seconds: float = 0.0


def junit_xml(record: RunRecord) -> str:
    """The whole file as text, to be written as UTF-8."""
    cases = [*_checks(record)]
    cases += _verdict(record, {case.text for case in cases if case.result == "failure"})
    root = _counted(ET.Element("testsuites", name=_clean(f"fleet run {record.name}")), cases)
    for name in dict.fromkeys(case.suite for case in cases):
        of_suite = [case for case in cases if case.suite == name]
        suite = _counted(ET.SubElement(root, "testsuite", name=name, timestamp=record.began_at), of_suite)
        for case in of_suite:
            element = ET.SubElement(suite, "testcase", classname=name, name=_clean(case.name))
            if case.seconds:  # a reader would take 0 for a time
                element.set("time", f"{case.seconds:.6f}")
            if case.result:
                text = _clean(case.text)
                ET.SubElement(element, case.result, message=text, type="check").text = text
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counted(element: ET.Element, cases: list[_Case]) -> ET.Element:
    element.set("tests", str(len(cases)))
    for name, result in _RESULTS.items():
        element.set(name, str(sum(case.result == result for case in cases)))
    return element


def _clean(text: str) -> str:
    """The text without what XML 1.0 cannot hold (section 2.2)."""
    return _NOT_XML.sub("\ufffd", text)


def _checks(record: RunRecord) -> Iterator[_Case]:
    for span in spans_with_drain(record):
        # Sentences about a phase begin with its name.
        about = [sentence for sentence in record.verdict.sentences if sentence.startswith(f"phase {span.name}: ")]
        yield _Case("phases", span.name, "failure" if about else "", "\n".join(about), span.end_s - span.begin_s)
    for result in record.thresholds:
        word = "skipped" if not result.judged else "" if result.held else "failure"
        text = result.missed_text if result.judged else f"not judged: {result.reason}"
        yield _Case("thresholds", result.expression, word, text)
    if (audit := record.audit) is None:
        return
    for name, stream in audit.streams:
        for kind in WRONGS:
            word = text = ""
            if count := getattr(stream, kind):
                names = [finding.name for finding in audit.findings if finding.kind == kind]
                which = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "") or "see report.html"
                word, text = "failure", f"{count:,} of {stream.sent:,} sent: {which}"
            elif not audit.judges(name, kind):
                word, text = "skipped", "not judged: not everything that it takes could be read back"
            yield _Case("audit", f"{name} {kind}", word, text)
    why = "" if audit.complete else "; ".join(audit.unjudged or audit.sentences) or "not everything was read back"
    yield _Case("audit", "complete", "failure" if why else "", why)


def _verdict(record: RunRecord, told: set[str]) -> Iterator[_Case]:
    """The sentences of the verdict that no other case says; of an incomplete run at least the first one."""
    if record.verdict.word is VerdictStatus.PASSED:
        yield _Case("run", "verdict")
        return
    is_incomplete = record.verdict.word in _INCOMPLETE
    sentences = record.verdict.sentences or (VERDICT_WORDS[record.verdict.word],)
    untold = [sentence for sentence in sentences if sentence not in told]
    for sentence in untold or sentences[:is_incomplete]:
        yield _Case("run", sentence, "error" if is_incomplete else "failure", sentence)
