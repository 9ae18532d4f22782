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

from simulator.fleet.record import RunRecord, ThresholdResult, VerdictStatus
from simulator.fleet.report.figures import spans_with_drain
from simulator.fleet.report.formatting import VERDICT_WORDS
from simulator.fleet.report.summary import WRONGS

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INCOMPLETE: Final = {VerdictStatus.INCONCLUSIVE, VerdictStatus.UNREACHABLE, VerdictStatus.INTERRUPTED}
_RESULTS: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}


class _Case(NamedTuple):
    """One thing that was checked.

    Attributes:
        result: the element of a case that is not good: ``failure``, ``error`` or ``skipped``; empty for a good one.
        text: why.
        seconds: how long it took; 0 where nobody measured.
    """

    name: str
    result: str = ""
    text: str = ""
    seconds: float = 0.0


def junit_xml(record: RunRecord) -> str:
    """The whole file as text, to be written as UTF-8."""
    suites = {
        "phases": [*_phases(record)],
        "thresholds": [_threshold(result) for result in record.thresholds],
        "audit": [*_audit(record)],
    }
    told = {case.text for cases in suites.values() for case in cases if case.result == "failure"}
    suites["run"] = [*_verdict(record, told)]
    root = ET.Element("testsuites", name=_clean(f"fleet run {record.name}"))
    _count(root, [case for cases in suites.values() for case in cases])
    for name, cases in suites.items():
        if cases:
            suite = ET.SubElement(root, "testsuite", name=name, timestamp=record.began_at)
            _count(suite, cases)
            for case in cases:
                element = ET.SubElement(suite, "testcase", classname=name, name=_clean(case.name))
                _set_time(element, case.seconds)
                if case.result:
                    text = _clean(case.text)
                    ET.SubElement(element, case.result, message=text, type="check").text = text
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _count(element: ET.Element, cases: list[_Case]) -> None:
    element.set("tests", str(len(cases)))
    for name, result in _RESULTS.items():
        element.set(name, str(sum(case.result == result for case in cases)))
    _set_time(element, sum(case.seconds for case in cases))


def _set_time(element: ET.Element, seconds: float) -> None:
    if seconds:  # a reader would take 0 for a time
        element.set("time", f"{seconds:.6f}")


def _clean(text: str) -> str:
    """The text without what XML 1.0 cannot hold (section 2.2)."""
    return _NOT_XML.sub("\ufffd", text)


def _phases(record: RunRecord) -> Iterator[_Case]:
    """Phases of a record, and the drain; sentences about a phase begin with its name."""
    for span in spans_with_drain(record):
        about = [sentence for sentence in record.verdict.sentences if sentence.startswith(f"phase {span.name}: ")]
        yield _Case(span.name, "failure" if about else "", "\n".join(about), span.end_s - span.begin_s)


def _threshold(result: ThresholdResult) -> _Case:
    if not result.judged:
        word, text = "skipped", f"not judged: {result.reason}"
    else:
        word, text = ("", "") if result.held else ("failure", result.missed_text)
    return _Case(result.expression, word, text)


def _audit(record: RunRecord) -> Iterator[_Case]:
    if (audit := record.audit) is None:
        return
    for name, stream in audit.streams:
        for word in WRONGS:
            count, result, text = getattr(stream, word), "", ""
            if count:
                names = [finding.name for finding in audit.findings if finding.kind == word]
                which = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "") or "see report.html"
                result, text = "failure", f"{count:,} of {stream.sent:,} sent: {which}"
            elif not audit.judges(name, word):
                result, text = "skipped", "not judged: not everything that it takes could be read back"
            yield _Case(f"{name} {word}", result, text)
    why = "" if audit.complete else "; ".join(audit.unjudged or audit.sentences) or "not everything was read back"
    yield _Case("complete", "failure" if why else "", why)


def _verdict(record: RunRecord, told: set[str]) -> Iterator[_Case]:
    """The sentences of the verdict that no other case says; of an incomplete run at least the first one."""
    if record.verdict.word is VerdictStatus.PASSED:
        yield _Case("verdict")
        return
    is_incomplete = record.verdict.word in _INCOMPLETE
    sentences = record.verdict.sentences or (VERDICT_WORDS[record.verdict.word],)
    untold = [sentence for sentence in sentences if sentence not in told]
    for sentence in untold or sentences[:is_incomplete]:
        yield _Case(sentence, "error" if is_incomplete else "failure", sentence)
