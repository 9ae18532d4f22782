"""A run for other programs: JSON and JUnit XML. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, Final

from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.record import AuditRecord, RunRecord, Tally, ThresholdResult, Word
from simulator.fleet.report.figures import TABLE, name_of, times_at
from simulator.fleet.report.sheets import COUNTS, MEASURES, counts_of
from simulator.fleet.report.summary import WRONGS, LimiterCheck, limiter_checks, observed_text, streams_of
from simulator.fleet.report.words import VERDICT_WORDS, clock_text
from simulator.report.checks import Check, CheckRun, Mark

_INCOMPLETE: Final = {Word.INCONCLUSIVE, Word.UNREACHABLE, Word.INTERRUPTED}


def summary_json(record: RunRecord) -> str:
    """The record with percentiles as numbers instead of histograms, for scripts; times in seconds."""
    document = asdict(record)
    for member, operations in (("operations", record.operations), ("ages", shown_ages(record.ages))):
        document[member] = {
            name: {outcome: _tally(tally) for outcome, tally in classes.items()} for name, classes in operations.items()
        }
    document["command_stages"] = {
        name: {"count": times.count, **_times(times)}
        for name, times in ((name, Histogram.decode(text)) for name, text in record.command_stages.items())
    }
    del document["health"]["send_lag"]
    return json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def checks_of(record: RunRecord) -> CheckRun:
    """Thresholds, a limiter's checks and the audit, for JUnit: :func:`simulator.report.junit.junit_xml`.

    What makes the run as a whole worth nothing, such as a generator at its limit, is a problem of the run; so is what
    no check is about, such as a barrier that never opened. A run that did not pass is never without one or the other.
    """
    checks = [_threshold(result) for result in record.thresholds] + list(map(_limiter, limiter_checks(record)))
    checks += _audit(record.audit)
    is_told = any(check.mark is Mark.BAD for check in checks)
    is_whole = record.verdict.word in _INCOMPLETE or (record.verdict.exit_code != 0 and not is_told)
    problems = record.verdict.sentences or (VERDICT_WORDS[record.verdict.word],)
    return CheckRun(
        title=f"fleet run {record.name}",
        headline=VERDICT_WORDS[record.verdict.word],
        lead="",
        facts=(),
        checks=tuple(checks),
        problems=problems if is_whole else (),
        began_at=record.began_at,
    )


def _tally(tally: Tally) -> dict[str, Any]:
    measured = {f"{name}_s": _times(Histogram.decode(getattr(tally, name))) for name in MEASURES}
    return {**dict(zip(COUNTS, counts_of(tally), strict=True)), **measured}


def _times(histogram: Histogram) -> dict[str, float]:
    return dict(zip(map(name_of, TABLE), times_at(histogram, TABLE), strict=True))


def _finite(value: Any) -> Any:
    """The document with null where a number is none: JSON has no other word for it."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _threshold(result: ThresholdResult) -> Check:
    where = f", worst at {clock_text(result.at_s)}" if result.at_s is not None else ""
    mark = Mark.GOOD if result.held else Mark.BAD if result.judged else Mark.SKIPPED
    told = f"observed {observed_text(result)}{where}" if result.judged else f"not judged: {result.reason}"
    return Check("thresholds", result.expression, result.expression, mark, told)


def _limiter(check: LimiterCheck) -> Check:
    mark = {"held": Mark.GOOD, "broken": Mark.BAD}.get(check.outcome, Mark.SKIPPED)
    return Check("limiter", check.name, check.expected, mark, check.observed)


def _audit(audit: AuditRecord | None) -> list[Check]:
    if audit is None:
        return []
    checks = [
        Check(
            "audit",
            f"{name} {word}",
            f"No {name} {word}",
            Mark.BAD if count else Mark.GOOD,
            f"{count:,} of {stream.sent:,} sent: {_devices(audit, word)}" if count else "",
        )
        for name, stream in streams_of(audit)
        for word in WRONGS
        for count in (getattr(stream, word),)
    ]
    reason = "" if audit.complete else "; ".join(audit.sentences) or "not everything was read back"
    mark = Mark.GOOD if audit.complete else Mark.BAD
    return [*checks, Check("audit", "complete", "Everything was read back", mark, reason)]


def _devices(audit: AuditRecord, word: str) -> str:
    names = [finding.name for finding in audit.findings if finding.kind == word]
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "") or "see report.html"  # noqa: PLR2004 - a few
