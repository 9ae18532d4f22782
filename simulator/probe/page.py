"""The report of a probe as one HTML file. Pure."""

from __future__ import annotations

from typing import Final

from agent.wire.probe.report import ProbeReport, ProbeVerdict, RuleVerdict, as_sentence
from simulator.report_parts.checks import Check, CheckRun, Fact, Mark
from simulator.report_parts.checks_page import checks_page

_MARKS: Final = {RuleVerdict.HOLDS: Mark.GOOD, RuleVerdict.BROKEN: Mark.BAD, RuleVerdict.UNJUDGED: Mark.SKIPPED}


def probe_page(report: ProbeReport) -> str:
    """The whole page as text, to be written as UTF-8."""
    rules = tuple(
        Check("Rules of the specification", each.name, each.rule, _MARKS[each.verdict], each.seen)
        for each in report.requirements
    )
    choices = tuple(
        Check(
            f"Open choices: {choice.topic}",
            choice.name,
            choice.value or "not observed",
            Mark.SKIPPED if choice.value is None else Mark.NOTED if choice.loss else Mark.GOOD,
            f"{choice.seen}. Lost by it: {choice.loss}" if choice.loss else choice.seen,
        )
        for choice in report.choices
    )
    facts = (
        Fact("rules that hold", str(report.count(RuleVerdict.HOLDS)), f"of {len(report.requirements)}"),
        Fact("choices observed", str(sum(choice.value is not None for choice in report.choices))),
        Fact("requests", str(report.requests), "with writing" if report.may_write else "read only"),
    )
    broken = [rule.rule for rule in report.requirements if rule.verdict is RuleVerdict.BROKEN]
    return checks_page(
        CheckRun(
            title=f"Probe of {report.base_url}",
            headline=str(report.standing).capitalize(),
            lead=as_sentence(report),
            facts=facts,
            checks=(*rules, *choices),
            problems=tuple(f"Broken: {rule}" for rule in broken)
            + (() if report.standing is not ProbeVerdict.INCONCLUSIVE else (str(report.standing).capitalize(),)),
            began_at=report.began_at,
            text=report.dialect,
            text_title="For the configuration of the agent",
        )
    )
