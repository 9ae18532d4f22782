"""A later audit becomes part of its run: record, verdict and reports are made with it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.errors import StorageError
from agent.wire.times import to_rfc3339
from simulator.fleet.metrics.judging import judge_thresholds
from simulator.fleet.metrics.thresholds import ThresholdError, parse
from simulator.fleet.record import AuditRecord, Reasons, RunRecord, ThresholdResult
from simulator.fleet.report.folder import RUNNING, forget_running, state_of, write_whole
from simulator.fleet.report.making import make_reports
from simulator.fleet.report.unended_run import complete_interrupted_record
from simulator.fleet.report.writing import RUN_FILE, read_record, record_text
from simulator.fleet.verdict import RunFindings, judge_run

_OF_AUDIT: Final = "audit."


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
    """Put an audit into the record of its run, and make all reports anew.

    Args:
        folder: of the run.
        audit: what was found now.

    Raises:
        ConfigurationError: the folder holds a damaged run.
    """
    record = read_record(folder)
    if not record.ended_at and state_of(folder) == RUNNING:
        return Merged((f"{folder}: the run still goes on: its record stays as it is",))
    try:
        record = with_audit(record if record.ended_at else _completed(record, folder), audit)
        write_whole(folder / RUN_FILE, record_text(record))
    except StorageError as error:
        return Merged((), (str(error),))
    forget_running(folder)
    made = make_reports(folder)
    verdict = made.record.verdict
    said = f"the run: {verdict.word}, exit code {verdict.exit_code}; {folder / 'report.html'}"
    return Merged((said,), made.missing)


def with_audit(record: RunRecord, audit: AuditRecord) -> RunRecord:
    """The record with another audit, judged by it.

    Args:
        record: of a run that ended, with its reasons.
        audit: what is true now.
    """
    reasons = record.reasons or Reasons()
    found = replace(record, audit=audit, audited_at=to_rfc3339(time.time()))
    thresholds = tuple(_judged(result, found) for result in record.thresholds)
    verdict = judge_run(RunFindings(audit, thresholds, record.gaps, record.partial, reasons))
    return replace(found, thresholds=thresholds, verdict=verdict)


def _judged(result: ThresholdResult, record: RunRecord) -> ThresholdResult:
    """A threshold on the audit, judged anew; any other as it is: nothing that it looks at has changed."""
    if not result.expression.startswith(_OF_AUDIT):
        return result
    try:
        return judge_thresholds([parse(result.expression)], record, iter(()))[0]
    except ThresholdError:
        return result


def _completed(record: RunRecord, folder: Path) -> RunRecord:
    """The record of a run that was killed, out of its seconds, as one that ended then."""
    found = complete_interrupted_record(record, folder)
    if found.reasons is not None:
        return replace(found, ended_at=to_rfc3339(time.time()))
    reasons = Reasons(interrupted=found.verdict.sentences[0])
    return replace(found, ended_at=to_rfc3339(time.time()), reasons=reasons)
