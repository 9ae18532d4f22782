"""The verdict: what a run's findings come to, in one word, an exit code, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.fleet.metrics.judging import missed_text
from simulator.fleet.record import (
    EXIT_CODES,
    AuditRecord,
    Reasons,
    StreamAudit,
    ThresholdResult,
    Verdict,
    VerdictStatus,
    WorkerGap,
)


@dataclass(frozen=True, slots=True)
class RunFindings:
    """Everything that the verdict is made of.

    Attributes:
        gaps: seconds that a worker did not report.
        partial: why the run did not reach its end, and what of it there is; empty for one that did.
        reasons: everything else.
    """

    audit: AuditRecord | None = None
    thresholds: Sequence[ThresholdResult] = ()
    gaps: Sequence[WorkerGap] = ()
    partial: str = ""
    reasons: Reasons = field(default_factory=Reasons)


def judge_run(found: RunFindings) -> Verdict:
    """The verdict. What weighs most gives the word; every reason is a sentence, the weightiest first.

    Lost data outweighs everything: nobody needs a longer run to know that. A target that went away, then a run that
    somebody ended, outweigh figures that are incomplete; a generator at its limit outweighs a threshold, since nobody
    knows whose fault it was that it failed. What failed has failed, whatever else could not be read back. A run that
    ended early keeps the word of its cause; what was measured until then is judged all the same, and the second
    sentence says so.
    """
    why = found.reasons
    reasons = (
        (VerdictStatus.LOST, _losses(found.audit)),
        (VerdictStatus.UNREACHABLE, [why.unreachable] if why.unreachable else []),
        (VerdictStatus.INTERRUPTED, [why.interrupted] if why.interrupted else []),
        (VerdictStatus.INCONCLUSIVE, [*why.broken, *why.saturated, *map(_gap, found.gaps)]),
        (
            VerdictStatus.FAILED,
            [
                *_not_accepted(found.audit),
                *why.failures,
                *map(missed_text, (t for t in found.thresholds if t.judged and not t.held)),
            ],
        ),
        (VerdictStatus.INCONCLUSIVE, [*_unaudited(found), *_unjudged(found)]),
    )
    given = [(word, sentences) for word, sentences in reasons if sentences]
    word = given[0][0] if given else VerdictStatus.PASSED
    lines = [sentence for _, sentences in given for sentence in sentences]
    if found.partial:
        lines.insert(1, _partial(found))
    return Verdict(word, int(EXIT_CODES[word]), tuple(lines) or (_all_well(found),))


def without_reports(verdict: Verdict, missing: Sequence[str]) -> Verdict:
    """The verdict when reports are missing: one that passed is inconclusive.

    Args:
        verdict: as it was.
        missing: what could not be written and why; nothing leaves the verdict as it was.
    """
    if not missing:
        return verdict
    if verdict.word is not VerdictStatus.PASSED:
        return Verdict(verdict.word, verdict.exit_code, (*verdict.sentences, *missing))
    word = VerdictStatus.INCONCLUSIVE
    return Verdict(word, int(EXIT_CODES[word]), (*missing, *verdict.sentences))


def _losses(audit: AuditRecord | None) -> list[str]:
    if audit is None:
        return []
    sentences = []
    streams = (("readings", audit.readings), ("commands", audit.commands), ("registrations", audit.registrations))
    for name, stream in streams:
        if stream is not None and (wrong := _wrong(stream)):
            sentences.append(f"{name}: {wrong} of {stream.sent:,} sent")
    return sentences


def _wrong(stream: StreamAudit) -> str:
    counts = {
        "lost": stream.lost,
        "doubled": stream.doubled,
        "altered": stream.altered,
        "stored but never sent": stream.unknown,
    }
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


def _unaudited(found: RunFindings) -> list[str]:
    if found.audit is None or found.audit.complete:
        return []
    if found.reasons.unreachable or found.reasons.interrupted:
        return list(found.audit.unjudged)
    return list(found.audit.unjudged) or ["the audit is not complete: not everything could be read back"]


def _unjudged(found: RunFindings) -> list[str]:
    """Thresholds that nobody could judge though the run reached its end."""
    if found.partial:
        return []
    open_ones = [result for result in found.thresholds if not result.judged]
    return [f"{result.expression} cannot be judged: {result.reason}" for result in open_ones]


def _not_accepted(audit: AuditRecord | None) -> list[str]:
    return [] if audit is None else list(audit.failures)


def _gap(gap: WorkerGap) -> str:
    return f"worker {gap.worker} did not report from {gap.from_s:.0f} s to {gap.to_s:.0f} s: {gap.reason}"


def _partial(found: RunFindings) -> str:
    """What the figures of a run that did not reach its end are worth."""
    thresholds = found.thresholds
    if not thresholds:
        return f"partial: {found.partial}"
    judged = [result for result in thresholds if result.judged]
    held = sum(result.held for result in judged)
    left = len(thresholds) - len(judged)
    whole = "1 threshold" if len(thresholds) == 1 else f"{len(thresholds)} thresholds"
    words = f"of {whole} {held} held so far, {len(judged) - held} did not"
    return f"partial: {found.partial}; {words}" + (f", {left} could not be judged" if left else "")


def _all_well(found: RunFindings) -> str:
    count = len(found.thresholds)
    parts = ["the threshold held" if count == 1 else f"all {count} thresholds held"] if count else []
    parts += found.reasons.held
    if found.audit is not None:
        parts.append("nothing was lost, doubled or altered")
    return "; ".join(parts) or "it ran to its end; the scenario asks for nothing more"
