"""A run from its scenario to its record: check, prepare, conduct, audit, judge, report; and a later audit of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from agent.errors import AgentError, ConfigurationError, StorageError
from agent.wire.encoding import to_rfc3339
from simulator.fleet.audit.run_audit import audit_run
from simulator.fleet.metrics.ages import EndState
from simulator.fleet.metrics.thresholds import Source, ThresholdError, judge_thresholds, measured, parse
from simulator.fleet.record import AuditRecord, CommandEnds, Reasons, RunRecord, ThresholdResult, VerdictStatus
from simulator.fleet.report.folder import (
    RUN_FILE,
    RUNNING,
    RunFolder,
    forget_running,
    read_record,
    read_seconds,
    record_text,
    state_of,
    write_whole,
)
from simulator.fleet.report.formatting import Tone
from simulator.fleet.report.making import finish_run, make_reports, read_run
from simulator.fleet.report.progress import Progress, RunView
from simulator.fleet.run.coordinator import Run, first_record
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.preparing import Preparation, check_gateway, claimed_devices
from simulator.fleet.run.ray_workers import RayWorkers
from simulator.fleet.run.worker import WallClock, work
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.client import open_client
from simulator.fleet.target.target import Target
from simulator.fleet.verdict import judge_run, without_reports
from simulator.watched import describe

_log = logging.getLogger(__name__)

_WITHOUT_DRAIN: Final = "backfill"
"""A kind that makes its load during the drain as well: its figures do not tell the two apart."""
_ANY: Final = "any"
_NOT_OURS: Final = ""
"""The name of the commands that came to devices under ids of no order of this run."""


class RunInterrupted(Exception):
    """The run was ended by hand before its load began, or a second time while it ended; the text has how far it was.

    Attributes:
        registered: devices that are at the target at least.
    """

    def __init__(self, text: str, registered: int = 0) -> None:
        super().__init__(text)
        self.registered = registered


def perform_run(
    file: ScenarioFile,
    target: Target,
    folder: Path,
    views: Sequence[RunView] = (),
    *,
    is_audited: bool = True,
    cluster: str | None = None,
) -> RunRecord:
    """The whole run; once its load has begun, its folder has record and seconds afterwards, whatever happens.

    Args:
        file: the scenario.
        target: how to reach it.
        folder: of the run; must hold none yet.
        views: show it while it goes on.
        is_audited: keep ledgers and read everything back at the end.
        cluster: the address of the Ray cluster that makes the load, or ``auto``; None for this machine alone.

    Raises:
        ConfigurationError: it cannot be run as the scenario says; nothing was sent.
        ServiceError: the target could not be prepared; no load was made, and there is no folder of a run.
        RunInterrupted: Ctrl-C, or a signal like it, before the load began; or a second one after the first has ended
            the load, the fetching of ledgers, or the reading back in order.
    """
    scenario = file.scenario
    check_gateway(scenario, target)
    with ExitStack() as last, ExitStack() as ends:
        workers = LocalWorkers(work) if cluster is None else RayWorkers(work, cluster)
        ends.enter_context(workers)
        count, needs = workers.check(scenario, target)
        ends.enter_context(claimed_devices(scenario, target.base_url))
        secrets = Path(ends.enter_context(TemporaryDirectory(prefix="fleet-simulator-")))
        kept = last.enter_context(RunFolder(folder))  # workers write into it until they have ended
        progress = Progress([ends.enter_context(view) for view in views])
        try:
            record = first_record(file, target.base_url, count, workers.machines)
            progress.begin(record)
            for need in needs:
                if not need.fits:
                    progress.note(str(need), Tone.WARN)
            kept.keep(record)
            run = Run(scenario, kept, record, progress, workers)
            preparation = Preparation(file, target, folder, secrets, count, is_audited)
            _prepare(run, preparation, workers, progress)
        except (AgentError, RunInterrupted):
            last.callback(kept.discard)  # no load was made: the same command can be given again
            raise
        try:
            has_all_ledgers = _conduct(run, workers)
            audit = _audit(run, preparation, has_all_ledgers=has_all_ledgers)
            record = _report(run, last_record(run, audit))
        except KeyboardInterrupt:
            fix = f"'fleet-simulator report {folder}' makes the reports of what there is"
            raise RunInterrupted(f"ended by hand at once: {fix}") from None
        progress.end(record)
    return record


def _prepare(run: Run, preparation: Preparation, workers: LocalWorkers | RayWorkers, progress: Progress) -> None:
    """Register the devices that are missing, and start the workers, up to the moment at which the load can begin."""
    done, stage = 0, "devices were being prepared"

    def show(now: int, wanted: int) -> None:
        nonlocal done, stage
        done, stage = now, f"devices were being prepared, at {now:,} of {wanted:,}"
        progress.stage("preparing devices", now, wanted)

    try:
        with _stage(progress, "preparing devices"):
            asyncio.run(preparation.prepare(show))
        stage = "workers were being started"
        workers.start(preparation.jobs)
        run.wait_until_ready()
    except KeyboardInterrupt:
        raise RunInterrupted(f"ended by hand while {stage}: no load was made", done) from None


def _conduct(run: Run, workers: LocalWorkers | RayWorkers) -> bool:
    """Make the load, and fetch the workers' ledgers; whether all of them are here and every worker came to its end."""
    wall_clock = WallClock()
    run.conduct()
    if (why := wall_clock.new_jump()) is not None:
        run.internal_errors.append(f"the coordinator: {why}")
    try:
        with _stage(run.progress, "fetching the ledgers") if workers.machines else nullcontext():
            missing = workers.collect()
    except KeyboardInterrupt:
        missing = ("not every ledger was fetched: that was ended by hand",)
    run.internal_errors += missing
    return not missing and len(run.summaries) == run.record.workers


def _audit(run: Run, preparation: Preparation, *, has_all_ledgers: bool) -> AuditRecord | None:
    """Compare the ledgers with what the service gives back; None without ledgers."""
    for summary in run.summaries.values():
        if summary.audit is not None:
            return summary.audit
    if not preparation.is_audited:
        return None
    if run.unreachable:
        again = "the target was gone: audit the folder with 'fleet-simulator audit' when it is back"
        return AuditRecord(None, None, complete=False, unjudged=(again,))
    text = "reading everything back"

    async def read() -> AuditRecord:
        timeout_s = run.scenario.target.timeout_s
        async with open_client(preparation.target, preparation.offers, timeout_s=timeout_s) as client:
            return await audit_run(
                run.folder.path,
                client.pages,
                lambda done, whole: run.progress.stage(text, done, whole),
                ended_s=time.time(),
            )

    try:
        with _stage(run.progress, text):
            audit = asyncio.run(read())
    except KeyboardInterrupt:
        why = "the audit was ended by hand"
    except AgentError as error:
        why = error.in_one_line if isinstance(error, ConfigurationError) else str(error)
    except Exception as error:  # noqa: BLE001 - a bug must not cost the run its record
        why = f"{text} ended unexpectedly: {describe(error)}"
        _log.exception(why)
    else:
        is_whole = has_all_ledgers and not any(summary.missed for summary in run.summaries.values())
        return audit if is_whole else replace(audit, complete=False, unjudged_counts=())
    return AuditRecord(None, None, complete=False, unjudged=(why,))


def _report(run: Run, record: RunRecord) -> RunRecord:
    """Write the record and all reports; a run whose reports cannot be made does not pass."""
    try:
        with _stage(run.progress, "making the reports"):
            missing = finish_run(run.folder, record)
    except AgentError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug: the record says so
        _log.exception("the reports could not be made")
        missing = (f"the reports could not be made: {describe(error)}; make them with 'fleet-simulator report'",)
        with suppress(StorageError):
            run.folder.finish(replace(record, verdict=without_reports(record.verdict, missing)))
    for sentence in missing:
        run.progress.note(sentence, Tone.BAD)
    # Not written down when the disk was full: 'fleet-simulator report' makes what is missing, and the verdict holds.
    return replace(record, verdict=without_reports(record.verdict, missing))


@contextmanager
def _stage(progress: Progress, text: str) -> Iterator[None]:
    progress.stage(text)
    try:
        yield
    finally:
        progress.stage("")


# --- the last record --------------------------------------------------------------------------------------------------


def last_record(run: Run, audit: AuditRecord | None) -> RunRecord:
    """The record of a run that has ended, with its verdict.

    Args:
        run: as it was.
        audit: what was read back; None without ledgers.
    """
    scenario, totals = run.scenario, run.totals
    is_open, is_pooled = bool(scenario.arrivals), scenario.target.is_pooled
    assessment = run.saturation.assess(totals, is_open=is_open, is_pooled=is_pooled)
    summaries = [run.summaries[number] for number in sorted(run.summaries)]
    partial = _why_partial(run)
    faults = tuple(span for summary in summaries for span in summary.faults) or run.record.faults
    record = replace(
        run.record,
        ended_at=to_rfc3339(time.time()),
        # Only those that began before the run ended.
        faults=tuple(span for span in faults if span.begin_s < run.played_s),
        audit=audit,
        commands=joined_ends(summary.commands for summary in summaries),
        gaps=run.merger.gaps,
        extras=_extras(run, assessment.notes),
        drained_from_s=None if scenario.kind == _WITHOUT_DRAIN else run.record.drained_from_s,
        partial=partial,
    )
    failures = [*run.failures, *(failure for summary in summaries for failure in summary.failures)]
    failures += ended_otherwise(record.commands, whole=not partial)
    if not (record.search and record.search.has_found_limit):  # each step of a search is judged by itself
        failures += assessment.failures
    if late := sum(left.count for left in run.leftovers.values()):
        names = ", ".join([name for left in run.leftovers.values() for name in left.names][:3])
        failures.append(f"{late} devices still held something after {scenario.drain_s:g} s ({names})")
    if run.record.drained_from_s is not None and (cut := run.summaries.keys() - run.leftovers.keys()):
        which = ", ".join(map(str, sorted(cut)))
        failures.append(f"the drain of worker {which} was cut off: what its devices still held is not known")
    # A worker that was lost after its last second has no gap: then only ``partial`` tells of it.
    is_explained = run.internal_errors or record.gaps or run.interrupted or run.unreachable or run.aborted
    reasons = Reasons(
        unreachable=run.unreachable,
        interrupted="ended by hand before its time" if run.interrupted else "",
        saturated=assessment.saturated,
        broken=(partial,) if partial and not is_explained else tuple(run.internal_errors),
        failures=tuple(failures),
        held=tuple(summary.success_note for summary in summaries if summary.success_note),
    )
    judged = _judged(replace(measured(record, totals, read_seconds(run.folder.path)), reasons=reasons))
    if judged.verdict.word is VerdictStatus.FAILED and assessment.stood_still:
        judged = _judged(replace(judged, reasons=replace(reasons, saturated=assessment.stood_still)))
    return judged


def _judged(record: RunRecord) -> RunRecord:
    return replace(record, verdict=judge_run(record))


def _why_partial(run: Run) -> str:
    """Why a run did not reach its end, and what of it there is; empty for one that did."""
    planned_s, workers = run.scenario.duration_s, run.record.workers
    if run.interrupted or run.unreachable or run.aborted:
        return f"it ended after {min(run.played_s, planned_s):.0f} s of {planned_s:.0f} s"
    if missing := workers - len(run.summaries):
        return f"{missing} of {workers} workers did not come to their end"
    return ""


def _extras(run: Run, notes: tuple[str, ...]) -> dict[str, Any]:
    """What workers found, by name: counts are added up, anything else is the same in all of them."""
    extras: dict[str, Any] = {}
    for summary in run.summaries.values():
        for name, found in summary.extras.items():
            before = extras.get(name, {})
            both = {key: before[key] + value for key, value in found.items() if key in before and type(value) is int}
            extras[name] = {**before, **found, **both}
    if notes:
        extras["notes"] = list(notes)
    return extras


# --- commands ---------------------------------------------------------------------------------------------------------


def joined_ends(found: Iterable[Sequence[CommandEnds]]) -> tuple[CommandEnds, ...]:
    """How the commands of each stream ended, added up over all workers.

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

    A service may list a command under another id than it gave in its answer to the order. So commands that came to
    devices under unknown ids, and ended as expected, may be those that seem open: as many of these are left out.

    Args:
        streams: of the whole run.
        whole: the run reached its end; else commands that have not ended are no failure.
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


def merge_audit(folder: Path, audit: AuditRecord) -> tuple[str, tuple[str, ...]]:
    """Put an audit into the record of its run, judge it anew, and make all reports again.

    Args:
        folder: of the run.
        audit: what was found now.

    Returns:
        A sentence for people: the verdict, or why the record is not changed; and what could not be written
        and why, a sentence each, such as on a full disk.

    Raises:
        ConfigurationError: the folder holds a damaged run.
    """
    record = read_record(folder)
    if not record.ended_at and state_of(folder) == RUNNING:
        return f"{folder}: the run still goes on: its record stays as it is", ()
    if not record.ended_at:
        record = read_run(folder)
        reasons = record.reasons or Reasons(interrupted=record.verdict.sentences[0])
        record = replace(record, ended_at=to_rfc3339(time.time()), reasons=reasons)
    found = replace(record, audit=audit, audited_at=to_rfc3339(time.time()))
    found = replace(found, thresholds=tuple(_judged_anew(result, found) for result in record.thresholds))
    try:
        write_whole(folder / RUN_FILE, record_text(_judged(found)))
    except StorageError as error:
        return "", (str(error),)
    forget_running(folder)
    made, missing = make_reports(folder)
    verdict = made.verdict
    return f"the run: {verdict.word}, exit code {verdict.exit_code}; {folder / 'report.html'}", missing


def _judged_anew(result: ThresholdResult, record: RunRecord) -> ThresholdResult:
    """A threshold on the audit, judged anew; any other is unchanged, since only the audit is new."""
    try:
        threshold = parse(result.expression)
    except ThresholdError:
        return result
    return judge_thresholds([threshold], record, iter(()))[0] if threshold.source is Source.AUDIT else result
