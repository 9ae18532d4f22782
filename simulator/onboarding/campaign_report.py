"""The report over a campaign: as JSON, as lines, and as checks for the page and the JUnit file."""

from __future__ import annotations

from typing import Any, Final

from simulator.onboarding.outcomes import CampaignReport, LabelResult, Outcome, Plan
from simulator.onboarding.tally import percentiles
from simulator.report_parts.checks import Check, CheckRun, Fact, Mark

_NAMES_SHOWN: Final = 10


def campaign_json(
    report: CampaignReport, plan: Plan, requests: dict[str, Any], copies: int, quota_refusals: int
) -> dict[str, Any]:
    """All of the report as JSON members; durations in seconds."""
    begun = [one for one in report.results if one.settled_by != "journal"]
    return {
        "passed": report.passed,
        "run": plan.run,
        "user_id": plan.user_id,
        "labels": len(report.results) + report.not_begun,
        "copies_left_out": copies,
        "outcomes": {outcome.value: report.count(outcome) for outcome in Outcome},
        "not_begun": report.not_begun,
        "settled_earlier": len(report.results) - len(begun),
        "settled_by_list": sum(one.settled_by == "list" for one in report.results),
        "lost_answers": report.ambiguous,
        "quota_refusals": quota_refusals,
        "duration_s": round(report.duration_s, 3),
        "labels_per_s": round(len(begun) / report.duration_s, 2) if report.duration_s > 0 else None,
        "rate_asked": plan.rate,
        "begun_late_s": percentiles([one.begun_late_s for one in begun]) if begun else None,
        "requests": requests,
        "list_at_the_end": {
            "agrees": report.audited.is_clean,
            "missing": list(report.audited.missing),
            "doubled": list(report.audited.doubled),
            "left": list(report.audited.left),
            "contradicted": list(report.audited.contradicted),
            "problem": report.audited.problem or None,
        },
        "stopped_by": str(report.stopped_by) if report.stopped_by else None,
        "interrupted": report.was_interrupted,
        "results": [_result_json(one) for one in report.results],
    }


def _result_json(one: LabelResult) -> dict[str, Any]:
    return {
        "device_identifier": one.subject.device_identifier,
        "product_id": one.subject.product_id,
        "source": one.subject.source,
        "outcome": one.outcome.value,
        "device_id": one.device_id or None,
        "settled_by": one.settled_by,
        "detail": one.detail,
        "begun_late_s": round(one.begun_late_s, 6),
        "took_s": round(one.took_s, 6),
    }


def campaign_lines(report: CampaignReport, document: dict[str, Any]) -> list[tuple[str, str]]:
    """The report in a dozen lines for a person."""
    counts = [f"{report.count(outcome)} {outcome.value}" for outcome in Outcome if report.count(outcome)]
    requests = document["requests"]
    lines = [
        ("labels", f"{document['labels']}: {', '.join(counts) or 'none'}; {report.not_begun} not begun"),
        ("arrivals", f"{document['labels_per_s']} labels/s, begun late by {_spread(document['begun_late_s'])}"),
        ("first tries", _counts(requests["first_attempts"])),
        ("retries", _counts(requests["retries"]) or "none"),
        ("lost answers", f"{report.ambiguous}; {document['settled_by_list']} label(s) found in the list"),
        ("quota", f"429 came {document['quota_refusals']} time(s)"),
        ("list", _audit_line(report)),
    ]
    if not report.audited.is_clean:
        lines.insert(0, lines.pop())  # what was found stands first
    if document["settled_earlier"]:
        lines.insert(1, ("resumed", f"{document['settled_earlier']} labels were settled by an earlier start"))
    return lines


def _spread(values: dict[str, float] | None) -> str:
    return "-" if values is None else ", ".join(f"{name} {value * 1000:.0f} ms" for name, value in values.items())


def _counts(by_action: dict[str, dict[str, int]]) -> str:
    return "; ".join(
        f"{what} {', '.join(f'{count} x {kind}' for kind, count in kinds.items())}" for what, kinds in by_action.items()
    )


def _audit_line(report: CampaignReport) -> str:
    audited = report.audited
    if audited.problem:
        return f"could not be read: {audited.problem}"
    if audited.is_clean:
        return "agrees: each device exactly once"
    named = (
        ("missing", audited.missing),
        ("doubled", audited.doubled),
        ("contradicted", audited.contradicted),
        ("not removed", audited.left),
    )
    return "; ".join(f"{word}: {_some(names)}" for word, names in named if names)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def campaign_faults(report: CampaignReport) -> list[str]:
    """One sentence for each label that did not end well."""
    return [
        f"{one.subject.device_identifier}: {one.outcome.value}" + (f": {one.detail}" if one.detail else "")
        for one in _worst_first(report)
        if not one.outcome.is_good
    ]


def _worst_first(report: CampaignReport) -> list[LabelResult]:
    """What the service did wrong, then what it refused or left open, then the rest, each in the labels' order."""
    order = (Outcome.CONTRADICTED, Outcome.TAKEN, Outcome.REFUSED, Outcome.UNSETTLED)
    return sorted(report.results, key=lambda one: order.index(one.outcome) if one.outcome in order else len(order))


def checks_of_campaign(report: CampaignReport, document: dict[str, Any], base_url: str, began_at: str) -> CheckRun:
    """The campaign as a run of checks, one for each label."""
    problems = [f"stopped: {report.stopped_by}"] if report.stopped_by else []
    problems += ["interrupted; the same command goes on"] if report.was_interrupted else []
    problems += [] if report.audited.is_clean else [f"the list at the end: {_audit_line(report)}"]
    problems += [f"{report.not_begun} label(s) not begun"] if report.not_begun else []
    good = sum(one.outcome.is_good for one in report.results)
    late = document["begun_late_s"]
    return CheckRun(
        "Onboarding campaign",
        "Each device exactly once." if report.passed else "Not every label ended well.",
        f"Labels scanned and registered for user {document['user_id']} at {base_url}, then held against the list.",
        (
            Fact("labels", str(document["labels"]), f"{good} ended well"),
            Fact("per second", str(document["labels_per_s"]), f"asked: {document['rate_asked'] or 'as many as fit'}"),
            Fact("begun late", "-" if late is None else f"{late['p95'] * 1000:.0f} ms", "95 of 100 at most"),
            Fact("lost answers", str(report.ambiguous), f"{document['settled_by_list']} settled by the list"),
            Fact("429", str(document["quota_refusals"])),
        ),
        tuple(_check(one) for one in _worst_first(report)),
        tuple(problems),
        began_at,
    )


def _check(one: LabelResult) -> Check:
    noted = one.settled_by == "list" or one.outcome is Outcome.FOUND
    mark = Mark.BAD if not one.outcome.is_good else Mark.NOTED if noted else Mark.GOOD
    earlier = "by an earlier start" if one.settled_by == "journal" else ""
    detail = one.detail if one.device_id in one.detail else f"device {one.device_id}, {one.detail}".rstrip(", ")
    reason = ", ".join(part for part in (detail, earlier) if part)
    seconds = None if earlier else one.took_s
    return Check("labels", one.subject.device_identifier, one.outcome.value, mark, reason, seconds)
