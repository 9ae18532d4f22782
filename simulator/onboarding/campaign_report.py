"""The report over a campaign: as JSON and as lines."""

from __future__ import annotations

from typing import Any, Final

from simulator.onboarding.outcomes import CampaignReport, LabelResult, Outcome, Plan
from simulator.onboarding.tally import percentiles

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
