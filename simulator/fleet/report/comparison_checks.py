"""Comparisons and histories as checks, for JUnit: a case for each figure. Pure."""

from __future__ import annotations

from simulator.fleet.report.compare import Comparison, Difference, Finding
from simulator.fleet.report.comparison_text import change_text, conclusion, figure_text
from simulator.fleet.report.history import ComparedFigure, Headline, History
from simulator.fleet.report.history_text import against_text, history_conclusion
from simulator.report_parts.checks import Check, CheckRun, Mark

_MARKS = {
    Finding.WORSE: Mark.BAD,
    Finding.BETTER: Mark.GOOD,
    Finding.NOT_SHOWN: Mark.GOOD,
    Finding.TOO_FEW: Mark.SKIPPED,
    Finding.NOT_JUDGED: Mark.SKIPPED,
}


def comparison_checks(found: Comparison) -> CheckRun:
    """A comparison as checks: worse is a failure, not judged is skipped, a run that proves nothing is an error."""
    checks = [_difference(each) for each in found.differences]
    checks += [Check("verdicts", sentence, sentence, Mark.BAD, sentence) for sentence in found.broken]
    return CheckRun(
        title=f"fleet comparison {found.a.name}",
        headline=conclusion(found),
        lead="",
        facts=(),
        checks=tuple(checks),
        problems=found.unjudged,
        began_at=found.b.began_at,
    )


def _difference(each: Difference) -> Check:
    text = f"{figure_text(each.figure, each.a.value)} in A, {figure_text(each.figure, each.b.value)} in B"
    return Check(each.operation, each.name, text, _MARKS[each.finding], f"{each.finding}: {text}, {change_text(each)}")


def history_checks(history: History) -> CheckRun:
    """The latest run of a history as checks."""
    latest = history.latest
    checks = [_headline(headline, latest.figures[headline.name]) for headline in history.headlines]
    if latest.has_lost:
        checks.append(Check("verdict", "data", "Nothing was lost", Mark.BAD, "the run lost or changed data"))
    return CheckRun(
        title=f"fleet history {history.scenario}",
        headline=history_conclusion(history),
        lead="",
        facts=(),
        checks=tuple(checks),
        problems=(history.unjudged,) if history.unjudged else (),
        began_at=latest.record.began_at,
    )


def _headline(headline: Headline, judged: ComparedFigure) -> Check:
    text = against_text(headline, judged)
    return Check("latest run", headline.name, text, _MARKS[judged.finding], f"{judged.finding}: {text}")
