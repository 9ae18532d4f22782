"""The record of a run that did not end, completed out of the seconds that were written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.errors import ConfigurationError
from simulator.exit_codes import ExitCode
from simulator.fleet.metrics.judging import measured, missed_text
from simulator.fleet.metrics.merging import Totals
from simulator.fleet.record import RunRecord, Verdict, VerdictStatus
from simulator.fleet.report.folder import state_of
from simulator.fleet.report.formatting import plural
from simulator.fleet.report.writing import RUN_FILE, SECONDS_FILE, read_seconds


def complete_interrupted_record(record: RunRecord, folder: Path) -> RunRecord:
    """The record of a run that did not end, completed out of its seconds.

    Raises:
        ConfigurationError: a second is damaged, or the record has what only that of a run that ended has.
    """
    if record.operations:
        raise ConfigurationError([f"{folder / RUN_FILE}: it has no end, and yet the sums of a run that ended"])
    totals = Totals()
    for second in read_seconds(folder):
        totals.add(second)
    seconds = totals.last + 1
    sentence = f"the run did not end: {state_of(folder)}; its figures cover {plural(seconds, 'second')}"
    found = replace(
        record,
        duration_s=float(seconds),
        phases=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.phases if each.begin_s < seconds),
        faults=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.faults if each.begin_s < seconds),
        partial=f"{plural(seconds, 'second')} were written down",
    )
    found = measured(found, totals, read_seconds(folder))
    if record.reasons is not None:
        cut = f"{RUN_FILE} was too large for the disk: the figures are those of {SECONDS_FILE}"
        verdict = replace(record.verdict, sentences=(*record.verdict.sentences, cut))
        return replace(found, thresholds=record.thresholds, partial=record.partial, verdict=verdict)
    missed = tuple(missed_text(result) for result in found.thresholds if result.judged and not result.held)
    sentences = (sentence, *missed, "nothing was audited")
    return replace(found, verdict=Verdict(VerdictStatus.INTERRUPTED, int(ExitCode.INTERRUPTED), sentences))
