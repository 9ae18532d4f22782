"""The last record of a run: everything that came of it, judged; and a later audit that is judged together with it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent.errors import StorageError
from agent.wire.times import to_rfc3339
from simulator.fleet.metrics.judging import judge_thresholds, measured
from simulator.fleet.metrics.stages import EndState
from simulator.fleet.metrics.thresholds import Source, ThresholdError, parse
from simulator.fleet.record import AuditRecord, CommandEnds, Reasons, RunRecord, Span, ThresholdResult, VerdictStatus
from simulator.fleet.report.folder import RUNNING, forget_running, state_of, write_whole
from simulator.fleet.report.making import make_reports
from simulator.fleet.report.unended_run import complete_interrupted_record
from simulator.fleet.report.writing import RUN_FILE, read_record, read_seconds, record_text
from simulator.fleet.run.run import Run
from simulator.fleet.verdict import judge_run

_SLOWEST_KEPT: Final = 20
_WITHOUT_DRAIN: Final = "backfill"
"""Its phase does not make all the load: history just takes its time."""
_ANY: Final = "any"
_NOT_OURS: Final = ""
"""The name of the commands that came to devices and that nobody here sent, as far as ids say."""


def last_record(run: Run, audit: AuditRecord | None, device_names: Mapping[str, str]) -> RunRecord:
    """Everything that came of a run, judged.

    Args:
        run: as it was.
        audit: what was read back; None without ledgers.
        device_names: number in the fleet -> name.
    """
    scenario, totals = run.scenario, run.totals
    assessment = run.saturation.assess(
        totals,
        is_open=bool(scenario.arrivals),
        is_pooled=scenario.target.is_pooled,
        stood_still_s=run.stood_still_s,
    )
    summaries = [run.summaries[number] for number in sorted(run.summaries)]
    partial = _why_partial(run)
    faults = tuple(_named(span, device_names) for summary in summaries for span in summary.faults) or run.record.faults
    slowest = sorted((found for summary in summaries for found in summary.slowest), key=lambda found: -found.response_s)
    record = replace(
        run.record,
        ended_at=to_rfc3339(time.time()),
        # Without those that were to begin after a run that ended before its time.
        faults=tuple(span for span in faults if span.begin_s < run.played_s),
        audit=audit,
        seconds=run.merger.given,
        commands=joined_ends(summary.commands for summary in summaries),
        slowest=tuple(slowest[:_SLOWEST_KEPT]),
        gaps=run.merger.gaps,
        extras=_extras(run, assessment.notes),
        drained_from_s=None if scenario.kind == _WITHOUT_DRAIN else run.record.drained_from_s,
        partial=partial,
    )
    failures = [*run.failures, *(failure for summary in summaries for failure in summary.failures)]
    failures += ended_otherwise(record.commands, whole=not partial)
    if not (record.search and record.search.has_found_limit):  # each step of a search is judged by itself
        failures += assessment.failures
    if run.late_count:
        late = ", ".join(run.late[:3])
        failures.append(f"{run.late_count} devices still held something after {scenario.drain_s:g} s ({late})")
    # A worker that was lost after its last second has no gap to be named by.
    is_explained = run.broken or record.gaps or run.interrupted or run.unreachable or run.aborted
    reasons = Reasons(
        unreachable=run.unreachable,
        interrupted="ended by hand before its time" if run.interrupted else "",
        saturated=assessment.saturated,
        broken=(partial,) if partial and not is_explained else tuple(run.broken),
        failures=tuple(failures),
        held=tuple(summary.held for summary in summaries if summary.held),
    )
    judged = _judged(replace(measured(record, totals, read_seconds(run.folder.path)), reasons=reasons))
    if judged.verdict.word is VerdictStatus.FAILED and assessment.stood_still:
        judged = _judged(replace(judged, reasons=replace(reasons, saturated=assessment.stood_still)))
    return judged


def _judged(record: RunRecord) -> RunRecord:
    return replace(record, verdict=judge_run(record))


def _named(fault: Span, names: Mapping[str, str]) -> Span:
    """What was done, with the devices' names where it has their numbers in the fleet."""
    numbers = fault.truth.get("devices")
    if not isinstance(numbers, Sequence):
        return fault
    return replace(fault, truth={**fault.truth, "devices": [names.get(str(each), str(each)) for each in numbers]})


def _why_partial(run: Run) -> str:
    """Why a run did not reach its end, and what of it there is; empty for one that did."""
    planned_s, workers = run.scenario.duration_s, run.record.workers
    if run.interrupted or run.unreachable or run.aborted:
        return f"it ended after {min(run.played_s, planned_s):.0f} s of {planned_s:.0f} s"
    if missing := workers - len(run.summaries):
        return f"{missing} of {workers} workers did not come to their end"
    return ""


def _extras(run: Run, notes: tuple[str, ...]) -> Mapping[str, Any]:
    extras: dict[str, Any] = {}
    for summary in run.summaries.values():
        for name, value in summary.extras.items():
            before = extras.get(name)
            both_are_maps = isinstance(value, Mapping) and isinstance(before, Mapping)
            extras[name] = joined(before, value) if both_are_maps and before is not None else value
    notes = (*notes, *run.problems)
    return {**extras, **({"notes": list(notes)} if notes else {})}


def joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """What two workers found of the same: counts are added up, anything else is the same for both."""
    found = {**one, **other}
    for name in one.keys() & other.keys():
        if type(one[name]) is int and type(other[name]) is int:
            found[name] = one[name] + other[name]
    return found


# --- commands ---------------------------------------------------------------------------------------------------------


def joined_ends(found: Iterable[Sequence[CommandEnds]]) -> tuple[CommandEnds, ...]:
    """The streams of commands of all workers, each once.

    Args:
        found: of each worker, in the order of the scenario's list.
    """
    streams: dict[int, CommandEnds] = {}
    for of_worker in found:
        for index, other in enumerate(of_worker):
            one = streams.get(index)
            streams[index] = other if one is None else replace(
                one,
                sent=one.sent + other.sent,
                refused=one.refused + other.refused,
                unanswered=one.unanswered + other.unanswered,
                ends=dict(Counter(one.ends) + Counter(other.ends)),
            )  # fmt: skip
    return tuple(streams[index] for index in sorted(streams))


def ended_otherwise(streams: Sequence[CommandEnds], *, whole: bool) -> Iterator[str]:
    """A sentence for each stream whose commands did not end as the scenario expects.

    Where a list gives a command another id than the answer to its order did, nobody knows which of a device's commands
    it is: as many as came to devices under unknown ids, and ended as expected, may be those that stayed open.

    Args:
        streams: of the whole run.
        whole: the run reached its end; else commands that have not ended are nobody's fault.
    """
    not_ours = Counter(next((each.ends for each in streams if each.name == _NOT_OURS), {}))
    for each in streams:
        if each.expect == _ANY or each.name == _NOT_OURS:
            continue
        wrong = {state: count for state, count in each.ends.items() if count and state != each.expect}
        if not whole:
            wrong.pop(EndState.OPEN, None)
        covered = min(wrong.get(EndState.OPEN, 0), not_ours[each.expect])
        not_ours[each.expect] -= covered
        if covered:
            wrong[EndState.OPEN] -= covered
        words = {EndState.OPEN.value: "had not ended"}
        ends = ", ".join(f"{count:,} {words.get(state, state)}" for state, count in wrong.items() if count)
        total = sum(each.ends.values())
        if ends:
            yield f"of {total:,} commands {each.name!r} that should have ended as {each.expect}: {ends}"
        elif whole and each.sent and not total and not not_ours[each.expect]:
            yield f"none of {each.sent:,} commands {each.name!r} is known to have ended as {each.expect}"


# --- a later audit ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a record and its reports.

    Attributes:
        sentences: what a person should know of it: the verdict, or why the record stays as it is.
        missing: what could not be written and why, a sentence each, such as on a full disk.
    """

    sentences: tuple[str, ...]
    missing: tuple[str, ...] = ()


def merge_audit(folder: Path, audit: AuditRecord) -> Merged:
    """Put an audit into the record of its run, judge it anew, and make all reports again.

    Args:
        folder: of the run.
        audit: what was found now.

    Raises:
        ConfigurationError: the folder holds a damaged run.
    """
    record = read_record(folder)
    if not record.ended_at and state_of(folder) == RUNNING:
        return Merged((f"{folder}: the run still goes on: its record stays as it is",))
    if not record.ended_at:
        record = complete_interrupted_record(record, folder)
        reasons = record.reasons or Reasons(interrupted=record.verdict.sentences[0])
        record = replace(record, ended_at=to_rfc3339(time.time()), reasons=reasons)
    found = replace(record, audit=audit, audited_at=to_rfc3339(time.time()))
    found = replace(found, thresholds=tuple(_judged_anew(result, found) for result in record.thresholds))
    try:
        write_whole(folder / RUN_FILE, record_text(_judged(found)))
    except StorageError as error:
        return Merged((), (str(error),))
    forget_running(folder)
    made = make_reports(folder)
    verdict = made.record.verdict
    sentence = f"the run: {verdict.word}, exit code {verdict.exit_code}; {folder / 'report.html'}"
    return Merged((sentence,), made.missing)


def _judged_anew(result: ThresholdResult, record: RunRecord) -> ThresholdResult:
    """A threshold on the audit, judged anew; any other as it is: nothing that it is about has changed."""
    try:
        threshold = parse(result.expression)
    except ThresholdError:
        return result
    return judge_thresholds([threshold], record, iter(()))[0] if threshold.source is Source.AUDIT else result
