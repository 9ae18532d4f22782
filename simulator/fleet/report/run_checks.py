"""A run as checks, for JUnit: its phases, thresholds and audit, and every sentence of its verdict. Pure."""

from __future__ import annotations

from typing import Final

from simulator.fleet.metrics.judging import missed_text
from simulator.fleet.record import AuditRecord, RunRecord, ThresholdResult, VerdictStatus
from simulator.fleet.report.formatting import VERDICT_WORDS, clock_text
from simulator.fleet.report.page.plots import spans_with_drain
from simulator.fleet.report.summary import WRONGS, observed_text, streams_of
from simulator.report_parts.junit import Check, CheckRun, Mark

_INCOMPLETE: Final = {VerdictStatus.INCONCLUSIVE, VerdictStatus.UNREACHABLE, VerdictStatus.INTERRUPTED}
_THRESHOLDS, _AUDIT, _RUN = "thresholds", "audit", "run"


def checks_of(record: RunRecord) -> CheckRun:
    """Every finding of a run, for :func:`simulator.report_parts.junit.junit_xml`.

    A case for each phase, which fails with its barrier, for each threshold, each count of
    the audit. A sentence of the verdict that none of these says in the same words is a case of its own, so that a run
    that did not pass is never without one. It is an error, instead of a failure, where the run says nothing about the
    target: its generator was at the limit, or it ended early. Times are those of phases, of what a threshold looks at,
    and of reading back; what has none of its own has none in the file.
    """
    checks = [*_phases(record), *(_threshold(result, record) for result in record.thresholds)]
    checks += _audit(record.audit)
    is_incomplete = record.verdict.word in _INCOMPLETE
    reasons = {check.reason for check in checks if check.mark is Mark.BAD}
    sentences = record.verdict.sentences or (VERDICT_WORDS[record.verdict.word],)
    untold = [sentence for sentence in sentences if sentence not in reasons]
    if record.verdict.word is VerdictStatus.PASSED:
        checks.append(Check(_RUN, "verdict", "; ".join(sentences), Mark.GOOD, seconds=record.duration_s or None))
    elif not is_incomplete:
        checks += [Check(_RUN, sentence, sentence, Mark.BAD, sentence) for sentence in untold]
    audit_s = record.audit.took_s if record.audit else 0.0
    lengths = {_THRESHOLDS: _phases_s(record), _AUDIT: audit_s, _RUN: record.duration_s}
    return CheckRun(
        title=f"fleet run {record.name}",
        checks=tuple(checks),
        problems=tuple(untold or sentences[:1]) if is_incomplete else (),
        began_at=record.began_at,
        seconds=record.duration_s + audit_s,
        group_seconds=lengths,
    )


def _phases(record: RunRecord) -> list[Check]:
    """Phases of a record, and the drain; sentences about a phase begin with its name."""
    checks = []
    for span in spans_with_drain(record):
        about = [sentence for sentence in record.verdict.sentences if sentence.startswith(f"phase {span.name}: ")]
        mark, took_s = Mark.BAD if about else Mark.GOOD, span.end_s - span.begin_s
        title = f"{span.name} from {clock_text(span.begin_s)} to {clock_text(span.end_s)}"
        checks.append(Check("phases", span.name, title, mark, "\n".join(about), seconds=took_s or None))
    return checks


def _phases_s(record: RunRecord, name: str | None = None) -> float:
    """How long the phases of this name lasted together, or all of them; of a run without phases all of it."""
    lengths = [span.end_s - span.begin_s for span in record.phases if name in {None, span.name}]
    return sum(lengths) if record.phases else record.duration_s


def _threshold(result: ThresholdResult, record: RunRecord) -> Check:
    at = f", worst at {clock_text(result.at_s)}" if result.at_s is not None else ""
    phase = next((span.name for span in record.phases if f" in {span.name} " in f"{result.expression} "), None)
    mark = Mark.GOOD if result.held else Mark.BAD if result.judged else Mark.SKIPPED
    reason = {
        Mark.GOOD: f"observed {observed_text(result)}{at}",
        Mark.BAD: missed_text(result),
        Mark.SKIPPED: f"not judged: {result.reason}",
    }[mark]
    seconds = _phases_s(record, phase) or None
    return Check(_THRESHOLDS, result.expression, result.expression, mark, reason, seconds)


def _audit(audit: AuditRecord | None) -> list[Check]:
    if audit is None:
        return []
    seconds = audit.took_s or None
    unknown = Mark.SKIPPED, "not judged: not everything that it takes could be read back"
    checks = [
        Check(
            _AUDIT,
            f"{name} {word}",
            f"No {name} {word}",
            Mark.BAD if count else unfound[0],
            f"{count:,} of {stream.sent:,} sent: {_devices(audit, word)}" if count else unfound[1],
            seconds,
        )
        for name, stream in streams_of(audit)
        for word in WRONGS
        for count in (getattr(stream, word),)
        for unfound in ((Mark.GOOD, "") if audit.judges(name, word) else unknown,)
    ]
    reason = "" if audit.complete else "; ".join(audit.unjudged or audit.sentences) or "not everything was read back"
    mark = Mark.GOOD if audit.complete else Mark.BAD
    return [*checks, Check(_AUDIT, "complete", "Everything was read back", mark, reason, seconds)]


def _devices(audit: AuditRecord, word: str) -> str:
    names = [finding.name for finding in audit.findings if finding.kind == word]
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "") or "see report.html"
