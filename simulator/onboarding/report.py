"""Reports over labels and cases: as JSON and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from simulator.onboarding.driver import JourneyReport, OnboardingReport, StepReport
from simulator.onboarding.journey import StepVerdict
from simulator.onboarding.running import CaseReport, CasesReport

_MARKS: Final = {
    StepVerdict.PASSED: ("ok", "green"),
    StepVerdict.ALLOWED: ("allowed", "yellow"),
    StepVerdict.FAILED: ("FAILED", "bold red"),
    StepVerdict.SKIPPED: ("-", "dim"),
}


def as_json(report: OnboardingReport) -> dict[str, Any]:
    """All of the report as JSON members; durations in seconds, to the microsecond."""
    return {
        "passed": report.passed,
        "user_id": report.user_id,
        "labels": len(report.journeys) + len(report.not_begun),
        "labels_passed": sum(journey.passed for journey in report.journeys),
        "stopped_by": str(report.stopped_by) if report.stopped_by else None,
        "still_registered": [journey.device_id for journey in report.still_registered],
        "not_begun": [subject.device_identifier for subject in report.not_begun],
        "journeys": [_journey_json(journey) for journey in report.journeys],
    }


def _journey_json(journey: JourneyReport) -> dict[str, Any]:
    return {
        "device_identifier": journey.subject.device_identifier,
        "product_id": journey.subject.product_id,
        "source": journey.subject.source,
        "device_id": journey.device_id or None,
        "state": journey.state.value,
        "passed": journey.passed,
        "steps": [_step_json(step) for step in journey.steps],
    }


def _step_json(step: StepReport) -> dict[str, Any]:
    return {
        "action": step.action,
        "label": step.label,
        "expected": step.expected,
        "answered": step.answered,
        "detail": step.detail,
        "duration_s": round(step.duration_s, 6),
        "waited_s": round(step.waited_s, 6),
        "verdict": step.verdict.value,
    }


def as_table(report: OnboardingReport) -> Table:
    """One row per label: each step with its time, the state it led to, and the device if it is registered now."""
    actions = [step.action for step in report.journeys[0].steps] if report.journeys else []
    table = Table(header_style="bold", expand=False)
    table.add_column("label", no_wrap=True)
    for action in actions:
        table.add_column(action, justify="right", no_wrap=True)
    table.add_column("state")
    if report.still_registered:
        table.add_column("device", overflow="fold")
    for journey in report.journeys:
        device = [Text(journey.device_id or "-")] if report.still_registered else []
        steps = (_cell(step) for step in journey.steps)
        table.add_row(Text(journey.subject.device_identifier), *steps, Text(journey.state.value), *device)
    return table


def _cell(step: StepReport) -> Text:
    mark, style = _MARKS[step.verdict]
    if step.verdict is StepVerdict.SKIPPED:
        return Text(mark, style=style)
    waited = f" +{step.waited_s:.0f} s" if step.waited_s else ""
    return Text(f"{mark} {step.duration_s * 1000:.0f} ms{waited}", style=style)


def faults(report: OnboardingReport) -> list[str]:
    """One sentence per failed step; the caller reports the one that stopped the run."""
    return [
        f"{journey.subject.device_identifier}: {_sentence(step)}"
        for journey in report.journeys
        for step in journey.steps
        if step.verdict is StepVerdict.FAILED
        and not (journey is report.journeys[-1] and report.stopped_by and step is _last_asked(journey))
    ]


def _last_asked(journey: JourneyReport) -> StepReport | None:
    return next((step for step in reversed(journey.steps) if step.verdict is not StepVerdict.SKIPPED), None)


def cases_json(report: CasesReport) -> dict[str, Any]:
    """The report over all cases as JSON members."""
    counts = {verdict.value: report.count(verdict) for verdict in StepVerdict}
    return {
        "cases": [_case_json(one) for one in report.cases],
        "not_begun": [case.name for case in report.not_begun],
        "stopped_by": str(report.stopped_by) if report.stopped_by else None,
        "counts": counts,
        **counts,
        "passed": report.passed,
        "headline": headline(report),
        "races": races_line(report) or None,
    }


def _case_json(report: CaseReport) -> dict[str, Any]:
    return {
        "name": report.case.name,
        "title": report.case.title,
        "labels": [label.value for label in report.case.labels],
        "verdict": report.verdict.value,
        "skipped": report.skipped or None,
        "problem": report.problem or None,
        "plays": report.plays,
        "device_id": report.journey.device_id or None if report.journey else None,
        "steps": [_step_json(step) for step in report.journey.steps] if report.journey else [],
    }


def cases_table(report: CasesReport, *, everything: bool) -> Table:
    """One row per case; without ``everything`` only those that a reader has to look at."""
    table = Table(header_style="bold", expand=False)
    table.add_column("case", overflow="fold")
    table.add_column("", no_wrap=True)
    table.add_column("what was not as chosen", overflow="fold")
    for one in worst_first(report.cases):
        if everything or one.verdict in {StepVerdict.FAILED, StepVerdict.ALLOWED}:
            mark, style = _MARKS[one.verdict]
            reasons = one.skipped or "; ".join(case_faults(one))
            table.add_row(Text(one.case.name), Text(mark, style=style), Text(reasons))
    return table


def case_faults(report: CaseReport) -> list[str]:
    """One sentence for each step that was not as docs/service.md has it, the failed ones first."""
    if report.problem:
        return [report.problem]
    found = [_sentence(step) for verdict in _WORST for step in _steps(report) if step.verdict is verdict]
    if report.is_race and report.verdict is StepVerdict.FAILED:
        found.insert(0, f"found in play {report.plays}")
    return found


_WORST: Final = (StepVerdict.FAILED, StepVerdict.ALLOWED)


def worst_first(cases: Sequence[CaseReport]) -> list[CaseReport]:
    """Failed cases, then those that are allowed or skipped, then the rest, each in the order of the run."""
    order = (StepVerdict.FAILED, StepVerdict.ALLOWED, StepVerdict.SKIPPED, StepVerdict.PASSED)
    return sorted(cases, key=lambda one: order.index(one.verdict))


def headline(report: CasesReport) -> str:
    """How many cases failed, fit, were skipped, and were not begun; a skipped one is never said to fit."""
    failed, skipped = report.count(StepVerdict.FAILED), report.count(StepVerdict.SKIPPED)
    allowed = report.count(StepVerdict.ALLOWED)
    fit = f"{report.count(StepVerdict.PASSED) + allowed} fit" + (f" ({allowed} allowed)" if allowed else "")
    reasons = dict.fromkeys(one.skipped for one in report.cases if one.skipped)
    why = f": {'; '.join(reasons)}" if reasons else ""
    parts = [
        f"{failed} failed" if failed else "",
        fit,
        f"{len(report.not_begun)} not begun" if report.not_begun else "",
        f"{skipped} skipped{why}" if skipped else "",
    ]
    return ", ".join(filter(None, parts))


_CONFIDENCE: Final = 0.95
_WINDOW_S: Final = 0.0002


def races_line(report: CasesReport) -> str:
    """What the races that fit do not exclude, in plain words; empty without any."""
    races = [one for one in report.cases if one.is_race and one.verdict.is_good]
    if not races:
        return ""
    plays = min(one.plays for one in races)
    share = 1 - (1 - _CONFIDENCE) ** (1 / plays)
    gaps_s = sorted(gap for one in races for gap in one.gaps_s)
    near = sum(gap <= _WINDOW_S for gap in gaps_s)
    sent = f"; in {near} of {len(gaps_s)} plays two requests were sent within 0.2 ms of each other" if gaps_s else ""
    missed = "any" if plays == 1 else f"one that shows in fewer than {share:.0%} of the plays"
    times = "once" if plays == 1 else f"{plays} times"
    return f"{len(races)} race(s) found no fault, each played {times}{sent}; not excluded: {missed} (--repeat)"


def _sentence(step: StepReport) -> str:
    detail = f" ({step.detail})" if step.detail else ""
    return f"{step.action}: answered {step.answered}{detail}; expected {step.expected}"


def _steps(report: CaseReport) -> tuple[StepReport, ...]:
    return report.journey.steps if report.journey else ()
