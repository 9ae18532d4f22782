"""The onboarding report as JSON and as a table."""

from __future__ import annotations

from typing import Any, Final

from rich.table import Table
from rich.text import Text

from simulator.onboarding.driver import JourneyReport, OnboardingReport, StepReport
from simulator.onboarding.journey import Verdict

_MARKS: Final = {Verdict.PASSED: ("ok", "green"), Verdict.FAILED: ("FAILED", "bold red"), Verdict.SKIPPED: ("-", "dim")}


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
        "steps": [
            {
                "action": step.action.value,
                "expected": step.expected,
                "answered": step.answered,
                "detail": step.detail,
                "duration_s": round(step.duration_s, 6),
                "waited_s": round(step.waited_s, 6),
                "verdict": step.verdict.value,
            }
            for step in journey.steps
        ],
    }


def as_table(report: OnboardingReport) -> Table:
    """One row per label: each step with its time, the state it led to, and the device if it is registered now."""
    actions = [step.action.value for step in report.journeys[0].steps] if report.journeys else []
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
    if step.verdict is Verdict.SKIPPED:
        return Text(mark, style=style)
    waited = f" +{step.waited_s:.0f} s" if step.waited_s else ""
    return Text(f"{mark} {step.duration_s * 1000:.0f} ms{waited}", style=style)


def faults(report: OnboardingReport) -> list[str]:
    """One sentence per failed step; the one that stopped the run is the caller's to tell."""
    return [
        f"{journey.subject.device_identifier}: {step.action}: expected {step.expected}, answered {step.answered}"
        + (f" ({step.detail})" if step.detail else "")
        for journey in report.journeys
        for step in journey.steps
        if step.verdict is Verdict.FAILED and not (journey.stopped_by and step.detail == str(journey.stopped_by))
    ]
