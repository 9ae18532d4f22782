"""The verdict: what a run's findings come to, in one word, an exit code, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.fleet.record import (
    EXIT_CODES,
    AuditRecord,
    Reasons,
    RunRecord,
    Search,
    StepWord,
    Verdict,
    VerdictStatus,
    WorkerGap,
)
from simulator.fleet.report.formatting import plural


def judge_run(found: RunRecord) -> Verdict:
    """The verdict of a run by its audit, thresholds, gaps and reasons, each of which is a sentence of it.

    What weighs most gives the word, and comes first.

    Lost data outweighs everything: nobody needs a longer run to know that. A target that went away, then a run that
    somebody ended, outweigh figures that are incomplete; a generator at its limit outweighs a threshold, since nobody
    knows whose fault it was that it failed. What failed has failed, whatever else could not be read back. A run that
    ended early keeps the word of its cause; what was measured until then is judged all the same, and the second
    sentence says so.
    """
    why = found.reasons or Reasons()
    search = {found.search.word: [search_text(found.search)]} if found.search else {}
    has_limit = found.search is not None and found.search.has_found_limit
    reasons = (
        (VerdictStatus.LOST, _losses(found.audit)),
        (VerdictStatus.UNREACHABLE, [why.unreachable] if why.unreachable else []),
        (VerdictStatus.INTERRUPTED, [why.interrupted] if why.interrupted else []),
        (
            VerdictStatus.INCONCLUSIVE,
            [*search.get(StepWord.UNJUDGED, ()), *why.broken, *why.saturated, *map(_gap, found.gaps)],
        ),
        (
            VerdictStatus.FAILED,
            [
                *(found.audit.failures if found.audit else ()),
                *(() if has_limit else search.get(StepWord.BROKE, ())),
                *why.failures,
                *(result.missed_text for result in found.thresholds if result.judged and not result.held),
            ],
        ),
        (VerdictStatus.INCONCLUSIVE, [*_unaudited(found.audit), *_unjudged(found)]),
    )
    given = [(word, sentences) for word, sentences in reasons if sentences]
    word = given[0][0] if given else VerdictStatus.PASSED
    lines = [sentence for _, sentences in given for sentence in sentences]
    if lines and found.search and (told := search_text(found.search)) not in lines:
        lines.append(told)
    if found.partial:
        lines.insert(1, _partial(found))
    return Verdict(word, int(EXIT_CODES[word]), tuple(lines or _all_well(found)))


def search_text(search: Search) -> str:
    """What a search for the limit came to, in a sentence."""
    held = "none held before" if search.largest_held is None else f"{search.text(search.largest_held)} held"
    if not search.steps:
        return f"{search.name}: it ended before the first step had been held"
    last, why = search.text(search.steps[-1].level), " and ".join(search.steps[-1].why)
    match search.word:
        case StepWord.BROKE if search.largest_held is None:
            return f"{search.name}: the first step, {last}, did not hold: {why}"
        case StepWord.BROKE:
            return f"{search.name}: {held}, {last} did not: {why}"
        case StepWord.UNJUDGED:
            return f"{search.name}: {held}; {last} cannot be judged: {why}"
    if search.largest_held == search.last:
        return f"{search.name}: every step held, up to {last}: the limit is higher"
    return f"{search.name}: {held}, and it ended before the next step had been held"


def without_reports(verdict: Verdict, missing: Sequence[str]) -> Verdict:
    """The verdict when reports are missing: one that passed is inconclusive.

    Args:
        verdict: as it was.
        missing: what could not be written and why; nothing leaves the verdict as it was.
    """
    if missing and verdict.word is VerdictStatus.PASSED:
        word = VerdictStatus.INCONCLUSIVE
        return Verdict(word, int(EXIT_CODES[word]), (*missing, *verdict.sentences))
    return replace(verdict, sentences=(*verdict.sentences, *missing))


def _losses(audit: AuditRecord | None) -> list[str]:
    if audit is None:
        return []
    return [f"{name}: {stream.wrong} of {stream.sent:,} sent" for name, stream in audit.streams if stream.wrong]


def _unaudited(audit: AuditRecord | None) -> Sequence[str]:
    if audit is None or audit.complete:
        return ()
    return audit.unjudged or ("the audit is not complete: not everything could be read back",)


def _unjudged(found: RunRecord) -> list[str]:
    """Thresholds that nobody could judge though the run reached its end."""
    if found.partial:
        return []
    open_ones = [result for result in found.thresholds if not result.judged]
    return [f"{result.expression} cannot be judged: {result.reason}" for result in open_ones]


def _gap(gap: WorkerGap) -> str:
    return f"worker {gap.worker} did not report from {gap.from_s:.0f} s to {gap.to_s:.0f} s: {gap.reason}"


def _partial(found: RunRecord) -> str:
    """What the figures of a run that did not reach its end are worth."""
    if not found.thresholds:
        return f"partial: {found.partial}"
    held = sum(result.held for result in found.thresholds)
    unjudged = sum(not result.judged for result in found.thresholds)
    failed = len(found.thresholds) - held - unjudged
    whole = plural(len(found.thresholds), "threshold")
    return f"partial: {found.partial}; of {whole} {held} held so far, {failed} did not, {unjudged} could not be judged"


def _all_well(found: RunRecord) -> list[str]:
    count = len(found.thresholds)
    parts = ["the threshold held" if count == 1 else f"all {count} thresholds held"] if count else []
    parts += found.reasons.held if found.reasons else ()
    if found.audit is not None:
        parts.append("nothing was lost, doubled or altered")
    searched = [search_text(found.search)] if found.search else []
    well = "; ".join(parts) or ("" if searched else "it ran to its end; the scenario asks for nothing more")
    return [*searched, *filter(None, (well,))]
